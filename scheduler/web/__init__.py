"""The read-only page: what the session process says of its last session, shown to people in a browser.

`asking` runs in the session process and answers one question at a time, between sessions, and only when somebody looks;
`answers` are the values that cross to the io process, where `site` serves them and `render` makes HTML of them.
"""
