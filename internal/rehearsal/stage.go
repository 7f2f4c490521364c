package rehearsal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/nodes"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/memcluster"
	"github.com/afloat-project/afloat/internal/platform/slim"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// Stage is a copy of a part of a cluster. Objects are added first. Then it is asked or played.
type Stage struct {
	*memcluster.Cluster
	// Rand is the source of chance of passes.
	Rand *rand.Rand
	// Kubelet simulates the scheduler and the kubelets.
	Kubelet *memcluster.Node
	// Guard checks the budgets, and is nil if there are none. Recount counts them again, and returns after
	// which time that must be repeated even if nothing happens, or 0. It is nil if there is nothing to count.
	Guard   reconcile.Guard
	Recount func(ctx context.Context) (again time.Duration, err error)
	// Complete completes a pod template as the API server does.
	Complete func(ctx context.Context, namespace string, template []byte) ([]byte, error)
	// PullJobs means that ImagePullJobs can be read.
	PullJobs bool
	// warnings holds the last message of the warnings of passes, by reason.
	warnings map[string]string
	// untouched holds the generations of the pods that were not ready when they were read and that have not
	// been touched since.
	untouched map[string]int64
}

// stages counts the stages, so that the UIDs of new objects differ between stages.
var stages atomic.Int64

// New returns an empty stage whose clock is set to the given time.
func New(now time.Time) *Stage {
	s := &Stage{
		Cluster:   memcluster.New(),
		Rand:      rand.New(rand.NewPCG(uint64(now.UnixNano()), 1)), //nolint:gosec // any seed does
		untouched: map[string]int64{},
		warnings:  map[string]string{},
	}
	s.Begin(now)
	s.Namespaces, s.Slim, s.UIDs = true, slim.Any, fmt.Sprint("rehearsed-", stages.Add(1))
	s.Kubelet = s.NewNode()
	s.Kubelet.Schedule = s.schedule

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

// found adds a pod as it is running. A pod that is being updated in place is still running its former
// containers. A pod that is not ready, or whose update is stuck, stays so until it is touched.
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

// schedule returns the node that a new pod must run on. Pods without such a node get a node with a
// placeholder name.
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

// API returns the API that passes use.
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
	// Revision is the revision of the pod according to its label.
	Revision string
	// Restarts lists the containers that an update in place stops.
	Restarts []string
	// Until is when the pod is no longer held back, if that depends on time alone. Otherwise it is zero.
	Until time.Time
	// Done means that nothing remains to be done with the pod. Waits means that something remains, but must
	// wait.
	Done, Waits bool
}

// Creation is a pod that a plan creates.
type Creation struct{ Pod, Revision string }

// Pass describes one pass.
type Pass struct {
	// Summary holds sentences about the plan as a whole.
	Summary []string
	// UpdateRevision is the revision that pods are moved to.
	UpdateRevision string
	Verdicts       []Verdict
	Creations      []Creation
	// Done lists the updates, deletions and creations of pods that were carried out.
	Done []Step
	// Unfinished means that there is more to be done immediately.
	Unfinished bool
	// Waiting describes what blocks the rollout or the scaling although nobody asked for that. It is empty if
	// nothing does. Failed describes what could not be done.
	Waiting, Failed string
	// After is the time until the next pass even if nothing happens, or 0 for never.
	After time.Duration
}

// Ask makes one pass over an object on the stage and returns what it decided. It returns nil if the object is
// gone or nothing is decided about it because it is being deleted.
func (s *Stage) Ask(ctx context.Context, player Player, key memcluster.Key) (*Pass, error) {
	s.Deliver(everything)
	object := s.Get(key)
	if object == nil {
		return nil, fmt.Errorf("there is no %s %s", key.Kind, key.Name)
	}
	return player(ctx, client.ObjectKeyFromObject(object), object.GetUID())
}

// everything is larger than any number of events.
const everything = 1 << 30
