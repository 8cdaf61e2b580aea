// kube-scheduler's own default filter and score plugins on clusters given as JSON, without an API server.
//
// Standard input: one JSON object a line, a cluster and the pods that ask (see request). Standard output: one line
// each (see response). Every object goes through the defaulting, the preparation and the validation of the API server
// first; what is stored after that is printed, so that another scheduler can be given exactly the same objects.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	api "k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	podstrategy "k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	schedulercache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// objects is a cluster: what exists, and the pods that ask for a node.
type objects struct {
	Nodes       []*v1.Node                      `json:"nodes"`
	Pods        []*v1.Pod                       `json:"pods"` // those with a node and not finished are on it
	Incoming    []*v1.Pod                       `json:"incoming"`
	Namespaces  []*v1.Namespace                 `json:"namespaces,omitempty"`
	Claims      []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims,omitempty"`
	Volumes     []*v1.PersistentVolume          `json:"persistentVolumes,omitempty"`
	Classes     []*storagev1.StorageClass       `json:"storageClasses,omitempty"`
	CSINodes    []*storagev1.CSINode            `json:"csiNodes,omitempty"`
	CSIDrivers  []*storagev1.CSIDriver          `json:"csiDrivers,omitempty"`
	Capacities  []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities,omitempty"`
	Attachments []*storagev1.VolumeAttachment   `json:"volumeAttachments,omitempty"`
}

type request struct {
	objects
	ID     json.RawMessage   `json:"id,omitempty"`
	Scores bool              `json:"scores,omitempty"` // also print the scores of each feasible node
	Gang   bool              `json:"gang,omitempty"`   // can all of incoming be placed, one after the other in some order?
	Target map[string]string `json:"target,omitempty"` // pod name -> node: is this outcome reached in some order?
}

type rejection struct {
	Code    string   `json:"code"` // Unschedulable, UnschedulableAndUnresolvable or Error
	Plugin  string   `json:"plugin"`
	Reasons []string `json:"reasons"`
}

type answer struct {
	Pod      string                 `json:"pod"`
	Feasible []string               `json:"feasible"`
	Rejected map[string][]rejection `json:"rejected"` // by node: what each filter plugin that rejects it says
	// by node and score plugin, before weights
	Scores map[string]map[string]int64 `json:"scores,omitempty"`
}

type response struct {
	ID        json.RawMessage   `json:"id,omitempty"`
	Error     string            `json:"error,omitempty"`
	Invalid   []string          `json:"invalid,omitempty"` // what the API server would refuse; nothing is answered then
	Stored    *objects          `json:"stored,omitempty"`
	Answers   []answer          `json:"answers,omitempty"`
	Reachable *bool             `json:"reachable,omitempty"` // of gang or target
	Outcome   map[string]string `json:"outcome,omitempty"`   // of gang: one assignment that was reached
}

func main() {
	sparingly()
	metrics.Register()
	// Alpha: without them the API server drops or refuses what needs a feature of the kubelet, and tolerations that
	// compare numbers.
	gates := map[string]bool{
		"TaintTolerationComparisonOperators": true,
		"UserNamespacesHostNetworkSupport":   true,
		"VolumeBindMountOptions":             true,
	}
	if err := feature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	profile, err := defaultProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	input := bufio.NewReaderSize(os.Stdin, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for {
		line, err := input.ReadBytes('\n')
		if len(line) > 1 {
			if err := encoder.Encode(respond(profile, line)); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			output.Flush()
		}
		if err != nil {
			return
		}
	}
}

// sparingly logs to stderr, but for one thing: taints that are no numbers are in many cases, and each is logged.
func sparingly() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	klog.SetOutput(lessTaints{})
}

type lessTaints struct{}

func (lessTaints) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("failed to parse taint value")) {
		return len(line), nil
	}
	return os.Stderr.Write(line)
}

// defaultProfile is that of kube-scheduler without DynamicResources, which needs devices that are not compared here.
func defaultProfile() (*config.KubeSchedulerProfile, error) {
	defaults, err := latest.Default()
	if err != nil {
		return nil, err
	}
	profile := &defaults.Profiles[0]
	points := &profile.Plugins.MultiPoint
	points.Enabled = slices.DeleteFunc(points.Enabled, func(p config.Plugin) bool { return p.Name == "DynamicResources" })
	return profile, nil
}

func respond(profile *config.KubeSchedulerProfile, line []byte) (out response) {
	var in request
	defer func() {
		if failure := recover(); failure != nil {
			out = response{ID: in.ID, Error: fmt.Sprint(failure)}
		}
	}()
	if err := json.Unmarshal(line, &in); err != nil {
		return response{Error: err.Error()}
	}
	out.ID = in.ID
	if out.Invalid = in.store(); out.Invalid != nil {
		return out
	}
	out.Stored = &in.objects
	s, err := newScheduler(profile, &in.objects)
	if err != nil {
		out.Error = err.Error()
		return out
	}
	if in.Gang || in.Target != nil {
		outcome := map[string]string{}
		reachable := s.reach(in.Incoming, in.Target, outcome, map[string]bool{})
		out.Reachable = &reachable
		if reachable {
			out.Outcome = outcome
		}
		return out
	}
	s.show(in.Pods)
	for _, pod := range in.Incoming {
		out.Answers = append(out.Answers, s.answer(pod, in.Scores))
	}
	return out
}

// store does to the objects what the API server does when they are created, and returns what it would refuse.
func (o *objects) store() []string {
	var invalid []string
	for _, pods := range [][]*v1.Pod{o.Pods, o.Incoming} {
		for i, pod := range pods {
			stored, problems := storePod(pod)
			pods[i] = stored
			invalid = append(invalid, problems...)
		}
	}
	for _, node := range o.Nodes {
		legacyscheme.Scheme.Default(node)
		internal := &api.Node{}
		if err := legacyscheme.Scheme.Convert(node, internal, nil); err != nil {
			invalid = append(invalid, err.Error())
			continue
		}
		for _, problem := range validation.ValidateNode(internal) {
			invalid = append(invalid, node.Name+": "+problem.Error())
		}
	}
	defaults(o.Namespaces)
	defaults(o.Claims)
	defaults(o.Volumes)
	defaults(o.Classes)
	defaults(o.CSINodes)
	defaults(o.CSIDrivers)
	defaults(o.Capacities)
	defaults(o.Attachments)
	return invalid
}

func defaults[T runtime.Object](list []T) {
	for _, object := range list {
		legacyscheme.Scheme.Default(object)
	}
}

func storePod(pod *v1.Pod) (*v1.Pod, []string) {
	legacyscheme.Scheme.Default(pod)
	internal := &api.Pod{}
	if err := legacyscheme.Scheme.Convert(pod, internal, nil); err != nil {
		return pod, []string{err.Error()}
	}
	ctx := context.Background()
	podstrategy.Strategy.PrepareForCreate(ctx, internal)
	var invalid []string
	for _, problem := range podstrategy.Strategy.Validate(ctx, internal) {
		invalid = append(invalid, pod.Namespace+"/"+pod.Name+": "+problem.Error())
	}
	stored := &v1.Pod{}
	if err := legacyscheme.Scheme.Convert(internal, stored, nil); err != nil {
		return pod, append(invalid, err.Error())
	}
	stored.APIVersion, stored.Kind = "v1", "Pod"
	if pod.Status.Phase != "" {
		stored.Status = pod.Status
	}
	served := &v1.Pod{} // empty maps do not come through
	data, err := json.Marshal(stored)
	if err == nil {
		err = json.Unmarshal(data, served)
	}
	if err != nil {
		return pod, append(invalid, err.Error())
	}
	return served, invalid
}

// scheduler is the default plugins over static informers and a snapshot that can be exchanged.
type scheduler struct {
	framework framework.Framework
	profile   *config.KubeSchedulerProfile
	lister    *exchangeable
	nodes     []*v1.Node
	pods      []*v1.Pod
}

type exchangeable struct{ *schedulercache.Snapshot }

func newScheduler(profile *config.KubeSchedulerProfile, o *objects) (*scheduler, error) {
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		return nil, err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	fill(factory, &v1.Node{}, o.Nodes)
	fill(factory, &v1.Pod{}, o.Pods)
	fill(factory, &v1.Namespace{}, o.Namespaces)
	fill(factory, &v1.PersistentVolumeClaim{}, o.Claims)
	fill(factory, &v1.PersistentVolume{}, o.Volumes)
	fill(factory, &storagev1.StorageClass{}, o.Classes)
	fill(factory, &storagev1.CSINode{}, o.CSINodes)
	fill(factory, &storagev1.CSIDriver{}, o.CSIDrivers)
	fill(factory, &storagev1.CSIStorageCapacity{}, o.Capacities)
	fill(factory, &storagev1.VolumeAttachment{}, o.Attachments)
	lister := &exchangeable{schedulercache.NewEmptySnapshot()}
	made, err := frameworkruntime.NewFramework(context.Background(), plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithSnapshotSharedLister(lister),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithParallelism(1),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())))
	if err != nil {
		return nil, err
	}
	return &scheduler{framework: made, profile: profile, lister: lister, nodes: o.Nodes, pods: o.Pods}, nil
}

// show makes the snapshot of these pods on the nodes: those that the scheduler's cache would charge.
func (s *scheduler) show(pods []*v1.Pod) {
	known := map[string]bool{}
	for _, node := range s.nodes {
		known[node.Name] = true
	}
	var charged []*v1.Pod
	for _, pod := range pods {
		if known[pod.Spec.NodeName] && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			charged = append(charged, pod)
		}
	}
	s.lister.Snapshot = schedulercache.NewSnapshot(charged, s.nodes)
}

func (s *scheduler) answer(pod *v1.Pod, scores bool) answer {
	out, _ := s.consider(pod, scores)
	return out
}

// consider also returns the cycle's state, with which the pod can be reserved on one of the feasible nodes.
func (s *scheduler) consider(pod *v1.Pod, scores bool) (answer, fwk.CycleState) {
	out := answer{Pod: pod.Namespace + "/" + pod.Name, Feasible: []string{}, Rejected: map[string][]rejection{}}
	ctx, state := context.Background(), framework.NewCycleState()
	infos, err := s.lister.NodeInfos().List()
	if err != nil {
		panic(err)
	}
	result, status, _ := s.framework.RunPreFilterPlugins(ctx, state, pod)
	var feasible []fwk.NodeInfo
	for _, info := range infos {
		name := info.Node().Name
		switch {
		case !status.IsSuccess():
			out.Rejected[name] = []rejection{reject(status)}
		case !result.AllNodes() && !result.NodeNames.Has(name):
			out.Rejected[name] = []rejection{reject(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "not one of the nodes of PreFilter"))}
		default:
			if rejections := s.filter(ctx, state, pod, info); rejections != nil {
				out.Rejected[name] = rejections
			} else {
				out.Feasible = append(out.Feasible, name)
				feasible = append(feasible, info)
			}
		}
	}
	slices.Sort(out.Feasible)
	if scores && len(feasible) > 0 {
		out.Scores = s.scores(ctx, state, pod, feasible)
	}
	return out, state
}

// filter asks every plugin, also those after the first that rejects the node.
func (s *scheduler) filter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, info fwk.NodeInfo) []rejection {
	var rejections []rejection
	skipped := state.GetSkipFilterPlugins()
	defer state.SetSkipFilterPlugins(skipped)
	for {
		status := s.framework.RunFilterPlugins(ctx, state, pod, info)
		if status.IsSuccess() {
			return rejections
		}
		rejections = append(rejections, reject(status))
		state.SetSkipFilterPlugins(state.GetSkipFilterPlugins().Clone().Insert(status.Plugin()))
	}
}

func reject(status *fwk.Status) rejection {
	return rejection{status.Code().String(), status.Plugin(), status.Reasons()}
}

func (s *scheduler) scores(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodes []fwk.NodeInfo) map[string]map[string]int64 {
	if status := s.framework.RunPreScorePlugins(ctx, state, pod, nodes); !status.IsSuccess() {
		panic(status.AsError())
	}
	scored, status := s.framework.RunScorePlugins(ctx, state, pod, nodes)
	if !status.IsSuccess() {
		panic(status.AsError())
	}
	weights := map[string]int64{}
	for _, plugin := range s.profile.Plugins.MultiPoint.Enabled {
		weights[plugin.Name] = max(1, int64(plugin.Weight))
	}
	found := map[string]map[string]int64{}
	for _, node := range scored {
		found[node.Name] = map[string]int64{}
		for _, score := range node.Scores {
			found[node.Name][score.Name] = score.Score / weights[score.Name]
		}
	}
	return found
}

// reach tells whether all members can be placed one after the other in some order (on their targets, if there are any).
// outcome holds what is placed so far and, on success, everything; dead are the states from which nothing is reached.
func (s *scheduler) reach(members []*v1.Pod, target, outcome map[string]string, dead map[string]bool) bool {
	if len(outcome) == len(members) {
		return s.even(members, outcome)
	}
	key := describe(outcome)
	if dead[key] {
		return false
	}
	s.show(s.with(members, outcome))
	moves, states := map[string][]string{}, map[string]fwk.CycleState{}
	for _, member := range members {
		if _, placed := outcome[member.Name]; !placed {
			found, state := s.consider(member, false)
			moves[member.Name], states[member.Name] = found.Feasible, state
		}
	}
	for _, member := range members {
		for _, node := range moves[member.Name] {
			if target != nil && target[member.Name] != node {
				continue
			}
			outcome[member.Name] = node
			if s.reserved(states[member.Name], member, node, func() bool { return s.reach(members, target, outcome, dead) }) {
				return true
			}
			delete(outcome, member.Name)
		}
	}
	dead[key] = true
	return false
}

// reserved tells what then tells while the pod has its volumes on the node reserved; that is undone where it tells no.
func (s *scheduler) reserved(state fwk.CycleState, pod *v1.Pod, node string, then func() bool) bool {
	ctx := context.Background()
	if s.framework.RunReservePluginsReserve(ctx, state, pod, node).IsSuccess() && then() {
		return true
	}
	s.framework.RunReservePluginsUnreserve(ctx, state, pod, node)
	return false
}

// with returns the pods that run and those members that have a node.
func (s *scheduler) with(members []*v1.Pod, outcome map[string]string) []*v1.Pod {
	pods := slices.Clone(s.pods)
	for _, member := range members {
		if node, placed := outcome[member.Name]; placed {
			bound := member.DeepCopy()
			bound.Spec.NodeName = node
			pods = append(pods, bound)
		}
	}
	return pods
}

// even tells whether the spread constraints of all members hold in the end: a member that was placed after one with a
// constraint can have broken it, which kube-scheduler does not look at.
func (s *scheduler) even(members []*v1.Pod, outcome map[string]string) bool {
	for _, member := range members {
		if len(member.Spec.TopologySpreadConstraints) == 0 {
			continue
		}
		others := maps.Clone(outcome)
		delete(others, member.Name)
		s.show(s.with(members, others))
		for _, rejection := range s.answer(member, false).Rejected[outcome[member.Name]] {
			if rejection.Plugin == "PodTopologySpread" {
				return false
			}
		}
	}
	return true
}

func describe(outcome map[string]string) string {
	parts := make([]string, 0, len(outcome))
	for _, name := range slices.Sorted(maps.Keys(outcome)) {
		parts = append(parts, name+"="+outcome[name])
	}
	return strings.Join(parts, " ")
}

// static is an informer that has always known its objects.
type static struct {
	cache.SharedIndexInformer // nil: whatever is not defined below must not be called
	indexer                   cache.Indexer
}

func fill[T metav1.Object](factory informers.SharedInformerFactory, kind runtime.Object, list []T) {
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, object := range list {
		if err := indexer.Add(object); err != nil {
			panic(err)
		}
	}
	factory.InformerFor(kind, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer { return &static{indexer: indexer} })
}

func (s *static) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	for _, object := range s.indexer.List() {
		handler.OnAdd(object, true)
	}
	return nil, nil
}

func (s *static) AddIndexers(indexers cache.Indexers) error { return s.indexer.AddIndexers(indexers) }
func (s *static) GetIndexer() cache.Indexer                 { return s.indexer }
func (s *static) GetStore() cache.Store                     { return s.indexer }
func (s *static) HasSynced() bool                           { return true }
