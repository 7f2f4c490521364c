package rehearsal

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/simulation"
)

// Stage is a copy of a part of a cluster. Objects are added first; then it is asked, or played.
type Stage struct {
	*simulation.Cluster
	// Kubelet is scheduler and kubelets.
	Kubelet *simulation.Node
	// Guard knows the budgets; nil for none. Recount counts them anew, and tells after which time they have
	// to be counted again although nothing happens, 0 for not at all; nil if there is nothing to count.
	Guard   reconcile.Guard
	Recount func(ctx context.Context) (again time.Duration, err error)
	// Complete completes a pod template as the API server does.
	Complete func(ctx context.Context, namespace string, template []byte) ([]byte, error)
	// PullJobs: ImagePullJobs can be known.
	PullJobs bool
	// warnings are what passes have warned of, by reason: the last message of each.
	warnings map[string]string
	// untouched are the pods that were not ready when they were read, and that nobody has touched since.
	untouched map[string]int64
}

// stages are told apart by the UIDs of what is new on them.
var stages atomic.Int64

// New returns an empty stage on which it is that time.
func New(now time.Time) *Stage {
	//nolint:gosec // any seed does
	s := &Stage{
		Cluster:   simulation.New(uint64(now.UnixNano())),
		untouched: map[string]int64{},
		warnings:  map[string]string{},
	}
	s.Begin(now)
	s.Namespaces, s.Slim, s.UIDs = true, slim.Any, fmt.Sprint("rehearsed-", stages.Add(1))
	s.Kubelet = &simulation.Node{
		Cluster:  s.Cluster,
		Digests:  map[string]string{},
		Schedule: s.schedule,
		Frozen:   map[string]bool{},
	}
	return s
}

// Add puts an object on the stage as it is in the cluster.
func (s *Stage) Add(kind string, object client.Object) {
	key := s.KeyOf(kind, object)
	s.Store(key, object)
	if pod, ok := object.(*corev1.Pod); ok {
		s.found(key.Name, pod)
	}
}

// found takes a pod up as it runs. One that is being updated in place runs the former content as yet, and one
// that is not ready, or whose update is stuck, stays so until somebody touches it.
func (s *Stage) found(name string, pod *corev1.Pod) {
	if pod.Annotations[pub.RuntimeContainersMeta] != "" {
		s.Kubelet.Daemon = true
	}
	s.Kubelet.Observes = s.Kubelet.Observes || pod.Status.ObservedGeneration > 0
	held := readiness.Condition(pod, pub.InPlaceUpdateReady)
	updating := held != nil && held.Status == corev1.ConditionFalse
	if !updating {
		s.Kubelet.Found(pod)
	}
	if (!updating || readiness.Stuck(pod)) && !readiness.Ready(pod) && pod.DeletionTimestamp == nil {
		s.untouched[name] = pod.Generation
		s.Kubelet.Frozen[name] = true
	}
}

// schedule sends a new pod to the node that it is meant for; others to one that has no name as yet.
func (s *Stage) schedule(pod *corev1.Pod) string {
	if node := nodes.Target(pod); node != "" {
		return node
	}
	return "(any)"
}

// Event implements reconcile.Recorder.
func (s *Stage) Event(_ client.Object, eventType, reason, message string) {
	if eventType == corev1.EventTypeWarning {
		s.warnings[reason] = message
	}
}

// API is what passes read and write through.
func (s *Stage) API() *reconcile.API {
	api := s.Cluster.API()
	api.Guard = s.Guard
	return api
}

// Player makes one pass over an object of one kind.
type Player func(ctx context.Context, name types.NamespacedName, uid types.UID) (*Pass, error)

// Verdict is what a plan decides about one pod.
type Verdict struct {
	Namespace, Pod, Action, Reason, Message string
	// Revision is the one that the pod has, by its label.
	Revision string
	// Restarts are the containers that an update in place stops.
	Restarts []string
	// Until is when time alone lifts what holds the pod; zero if it does not.
	Until time.Time
	// Done: nothing remains to be done with the pod. Waits: something does, and is held.
	Done, Waits bool
}

// Creation is a pod that a plan makes.
type Creation struct{ Pod, Revision string }

// Pass is what one pass decided.
type Pass struct {
	// Summary are sentences about the whole.
	Summary []string
	// UpdateRevision is the one that pods are moved to.
	UpdateRevision string
	Verdicts       []Verdict
	Creations      []Creation
	// Done is what was carried out of it, of what touches pods: updates, deletions and creations.
	Done []Step
	// Unfinished: there is more to be done at once.
	Unfinished bool
	// Waiting is what holds the rollout or the scaling, and nobody asked for; empty if nothing does. Failed
	// is what could not be done.
	Waiting, Failed string
	// After is when the next pass is due although nothing happens; 0 for not at all.
	After time.Duration
}

// Ask makes one pass over an object on the stage, and returns what it decided; nil if there is no such
// object, or nothing is decided about it as long as it is deleted.
func (s *Stage) Ask(ctx context.Context, player Player, key simulation.Key) (*Pass, error) {
	s.Deliver(everything)
	object := s.Get(key)
	if object == nil {
		return nil, fmt.Errorf("there is no %s %s", key.Kind, key.Name)
	}
	return player(ctx, client.ObjectKeyFromObject(object), object.GetUID())
}

// everything is more events than there ever are.
const everything = 1 << 30
