package judge

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// Lag is for how long a manager may not know of a change of somebody else.
const Lag = 45 * time.Second

// key names an object.
type key struct{ resource, namespace, name string }

func (k key) String() string {
	if k.namespace == "" {
		return k.resource + " " + k.name
	}
	return k.resource + " " + k.namespace + "/" + k.name
}

// object is an object at one revision.
type object struct {
	key
	revision int64
	metav1.ObjectMeta
	pod   *corev1.Pod
	claim *corev1.PersistentVolumeClaim
	// spec and status are those of objects of ours, with what rules need to know.
	spec   spec
	status status
	// request, pull and images are what some kinds are as a whole.
	request *v1beta1.ContainerRecreateRequest
	pull    *v1beta1.ImagePullJob
	images  *v1beta1.NodeImage
	// number is the number of a ControllerRevision, holder the holder of a lease, data that of a ConfigMap.
	number int64
	holder string
	data   map[string]string
	// lost is set for a node that new pods of a DaemonSet do not tolerate because nothing is heard of it.
	lost bool
	// made is the process that created a pod, and served is set if the pod was in service before.
	made   string
	served bool
	// standing is what the order in which pods are deleted goes by, and since is from when on it has been so; of a workload,
	// since when its status has told two revisions apart.
	standing standing
	since    time.Time
}

// change is a change with the object before and after it; nil is none.
type change struct {
	record.Change
	before, after *object
	// by is the process of a manager that made the change, or empty if it was somebody else.
	by string
}

// key names the object of the change.
func (c *change) key() key { return key{c.Resource, c.Namespace, c.Name} }

// lost is a change by which a pod of a workload went out of service, or began to go.
type lost struct {
	*change
	at time.Time
}

// state is what is stored at a revision.
type state struct {
	now     time.Time
	objects map[key]*object
	// pods are the pods of each workload.
	pods map[types.UID]map[key]*object
	// history has for each workload the specs that held within the last Lag, the present one last.
	history map[key][]past
	lost    []lost
	// gone is when the pod of a name began to go, or went.
	gone map[key]time.Time
	// free are the containers whose image was changed while their pod did not serve.
	free map[containerOf]bool
	// holder is the process of the manager that has the lease. overlapped is when another one last wrote a pod of a
	// workload, and deposed since when each process that wrote pods has been without the lease.
	holder     string
	overlapped map[types.UID]time.Time
	deposed    map[string]time.Time
	// begun is how often jobs were made for each run of an AdvancedCronJob, memories what a PersistentPodState
	// remembered until something else, ahead what the record has after now.
	begun    map[run]int
	memories map[key][]memory
	ahead    ahead
	// causes are why containers may be restarted, crashes the faults that are to become some, readied the containers that were seen
	// ready for a request, and calm is when faults were over.
	causes  map[containerOf][]cause
	crashes []record.Fault
	readied map[containerOf]string
	calm    time.Time
	// pulled is set if there are nodes with a daemon. Nobody pulls images on simulated ones.
	pulled bool
	// movedDown is when a pod got another revision while its containers were down.
	movedDown map[key]time.Time
}

// containerOf names a container of a pod, or of a request.
type containerOf struct {
	pod  key
	name string
}

// past is a spec that held until a time.
type past struct {
	spec  spec
	until time.Time
}

func newState() *state {
	return &state{objects: map[key]*object{}, pods: map[types.UID]map[key]*object{}, free: map[containerOf]bool{}, history: map[key][]past{},
		begun: map[run]int{}, memories: map[key][]memory{}, gone: map[key]time.Time{}, overlapped: map[types.UID]time.Time{},
		deposed: map[string]time.Time{}, causes: map[containerOf][]cause{}, readied: map[containerOf]string{},
		movedDown: map[key]time.Time{}}
}

// parse reads an object. Fields that no rule needs are left out.
func parse(c *record.Change) (*object, error) {
	if len(c.Object) == 0 {
		return nil, nil
	}
	o := &object{key: key{c.Resource, c.Namespace, c.Name}, revision: c.Revision}
	var part struct {
		Metadata    metav1.ObjectMeta `json:"metadata"`
		Revision    int64             `json:"revision"`
		Undecodable string            `json:"undecodable"`
	}
	if err := json.Unmarshal(c.Object, &part); err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
	}
	if part.Undecodable != "" {
		return nil, fmt.Errorf("%s at revision %d was not recorded: %s", o.key, c.Revision, part.Undecodable)
	}
	o.ObjectMeta, o.number = part.Metadata, part.Revision

	var into any
	switch c.Resource {
	case "pods":
		o.pod = &corev1.Pod{}
		into = o.pod
	case "persistentvolumeclaims":
		o.claim = &corev1.PersistentVolumeClaim{}
		into = o.claim
	case "leases":
		var lease struct {
			Spec struct {
				HolderIdentity string `json:"holderIdentity"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(c.Object, &lease); err != nil {
			return nil, fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
		}
		o.holder = lease.Spec.HolderIdentity
		return o, nil
	case "configmaps":
		var of struct{ Data map[string]string }
		if err := json.Unmarshal(c.Object, &of); err != nil {
			return nil, fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
		}
		o.data = of.Data
		return o, nil
	case "controllerrevisions":
		return o, nil
	case "nodes":
		var of struct{ Spec corev1.NodeSpec }
		if err := json.Unmarshal(c.Object, &of); err != nil {
			return nil, fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
		}
		o.lost = slices.ContainsFunc(of.Spec.Taints, func(taint corev1.Taint) bool {
			return taint.Effect == corev1.TaintEffectNoSchedule &&
				(taint.Key == corev1.TaintNodeUnreachable || taint.Key == corev1.TaintNodeNotReady)
		})
		return o, nil
	default:
		into = &struct {
			Spec   *spec   `json:"spec"`
			Status *status `json:"status"`
		}{&o.spec, &o.status}
	}
	if err := json.Unmarshal(c.Object, into); err != nil {
		return nil, fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
	}

	return o, o.parseWhole(c)
}

// parseWhole reads an object of a kind of which rules need to know all.
func (o *object) parseWhole(c *record.Change) error {
	var into any
	switch c.Resource {
	case "containerrecreaterequests":
		o.request = &v1beta1.ContainerRecreateRequest{}
		into = o.request
	case "imagepulljobs":
		o.pull = &v1beta1.ImagePullJob{}
		into = o.pull
	case "nodeimages":
		o.images = &v1beta1.NodeImage{}
		into = o.images
	default:
		return nil
	}
	if err := json.Unmarshal(c.Object, into); err != nil {
		return fmt.Errorf("%s at revision %d: %w", o.key, c.Revision, err)
	}
	return nil
}

// owner returns the UID of what controls an object.
func (o *object) owner() types.UID {
	if o == nil {
		return ""
	}
	if c := metav1.GetControllerOf(&o.ObjectMeta); c != nil {
		return c.UID
	}
	return ""
}

// apply makes the change part of the state.
func (s *state) apply(c *change) {
	k := c.key()
	if c.before != nil && c.before.pod != nil && c.after != nil {
		for _, container := range c.before.pod.Spec.Containers {
			if is, _ := images(c.after.pod, container.Name); is != familiar(container.Image) {
				s.free[containerOf{k, container.Name}] = !serving(c.before)
			}
		}
	}
	if c.before != nil && c.before.pod != nil {
		delete(s.pods[c.before.owner()], k)
	}
	if c.after == nil {
		delete(s.objects, k)
		return
	}
	s.objects[k] = c.after
	if c.after.pod != nil {
		of := c.after.owner()
		if s.pods[of] == nil {
			s.pods[of] = map[key]*object{}
		}
		s.pods[of][k] = c.after
		return
	}
	if c.before != nil && c.before.Generation != c.after.Generation {
		s.history[k] = append(s.history[k], past{c.before.spec, c.Time})
	}
}

// specs returns the specs of a workload that a manager may still believe in, the present one last.
func (s *state) specs(of *object) []spec {
	var all []spec
	for _, p := range s.history[of.key] {
		if s.late(p.until) {
			all = append(all, p.spec)
		}
	}
	return append(all, of.spec)
}

// workload returns the workload of a pod, or nil if it is not one of ours, or is gone.
func (s *state) workload(pod *object) *object {
	c := metav1.GetControllerOf(&pod.ObjectMeta)
	if c == nil {
		return nil
	}
	resource := map[string]string{"CloneSet": "clonesets", "StatefulSet": "statefulsets", "DaemonSet": "daemonsets",
		"BroadcastJob": "broadcastjobs"}[c.Kind]
	found := s.objects[key{resource, pod.Namespace, c.Name}]
	if found == nil || found.UID != c.UID {
		return nil
	}
	return found
}

// lostOf returns how many pods others have taken from a workload, so recently that a manager may not know, and that
// are not back. is says what they were. If they stay, only those count that did not go at once, because nodes said that
// they are not ready.
func (s *state) lostOf(owner types.UID, is func(*object) bool, stay bool) int {
	pods := map[key]bool{}
	for _, l := range s.lost {
		if l.by == "" && l.before.owner() == owner && s.late(l.at) && is(l.before) && !is(l.after) &&
			!is(s.objects[l.key()]) && (!stay || active(l.after)) {
			pods[l.key()] = true
		}
	}
	return len(pods)
}

// late reports whether something is so new that a manager may not know of it.
func (s *state) late(at time.Time) bool { return s.now.Sub(at) <= Lag }

// overlaps reports whether two managers have written pods of the workload of late.
func (s *state) overlaps(c *change) bool {
	at, ok := s.overlapped[c.owner()]
	return ok && s.late(at)
}

// owner returns the UID of what controls the object that was changed.
func (c *change) owner() types.UID {
	if c.after != nil {
		return c.after.owner()
	}
	return c.before.owner()
}

// active reports whether a pod runs, or will run, and is not going.
func active(o *object) bool {
	return o != nil && o.DeletionTimestamp == nil && o.pod.Status.Phase != corev1.PodSucceeded &&
		o.pod.Status.Phase != corev1.PodFailed
}

func condition(pod *corev1.Pod, of corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range pod.Status.Conditions {
		if c.Type == of {
			return c.Status
		}
	}
	return ""
}

// serving reports whether users have the pod: it is active, ready, and not taken out of service.
func serving(o *object) bool {
	if !active(o) || condition(o.pod, corev1.PodReady) != corev1.ConditionTrue {
		return false
	}
	if gate := condition(o.pod, pub.InPlaceUpdateReady); gate != "" && gate != corev1.ConditionTrue {
		return false
	}
	state := o.Labels[pub.LifecycleState]
	return state == "" || state == string(pub.LifecycleStateNormal)
}

// goes reports whether the change is that a pod begins to go.
func (c *change) goes() bool { return c.Resource == "pods" && active(c.before) && !active(c.after) }

// leaves reports whether the change takes a pod out of service.
func (c *change) leaves() bool {
	return c.Resource == "pods" && serving(c.before) && !serving(c.after)
}
