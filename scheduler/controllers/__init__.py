"""What makes and keeps objects beside scheduling; each part is a loop of the io process of the leader."""
