package cloneset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/platform/ownwrites"
	"github.com/afloat-project/afloat/internal/simulation"
)

// simulated is a manager on a simulated cluster.
type simulated struct {
	*simulation.Cluster
	node   *simulation.Node
	pass   *Pass
	events []string
	// eventsMu guards events while requests run in parallel.
	eventsMu sync.Mutex
	// due is when the manager asked to be called again; wake is set by anything else that would call it.
	due  time.Time
	wake bool
	// told is called with what every pass did.
	told       func(Outcome)
	nodeLabels map[string]map[string]string
	lostNodes  map[string]bool
	// others acts for whoever else acts on pods, and tells whether it did; nil for nobody.
	others func() bool
	// servesJobs: the cluster has the kind ImagePullJob.
	servesJobs bool
	// trace prints every pass.
	trace bool
	// tells: passes are made also where they are due only to tell of a wait.
	tells bool
}

var setKey = simulation.Key{Kind: "CloneSet", Name: "web"}

func simulate(seed uint64, set *appsv1beta1.CloneSet, features Features) *simulated {
	s := &simulated{Cluster: simulation.New(seed)}
	s.node = &simulation.Node{Cluster: s.Cluster, Digests: map[string]string{}, Observes: s.Chance(0.5)}
	set.Name, set.Namespace = setKey.Name, "default"
	s.Store(setKey, set)
	s.startManager(features)
	return s
}

func (s *simulated) startManager(features Features) {
	s.Restart()
	s.wake = true
	s.pass = &Pass{Reader: simReader{s}, Features: features, Random: s.Rand.IntN,
		Applier: Applier{Cluster: simWriter{s}, Events: s, Own: ownwrites.NewTracker(), Now: s.Now, Parallel: 1}}
}

func (s *simulated) Event(_ *appsv1beta1.CloneSet, eventType, reason, message string) {
	s.eventsMu.Lock() // creations run in parallel
	defer s.eventsMu.Unlock()
	s.events = append(s.events, eventType+" "+reason+" "+message)
}

// manage runs one pass if anything would call the manager, and tells whether it did.
func (s *simulated) manage() bool {
	if !s.wake && (s.due.IsZero() || s.Now().Before(s.due)) {
		return false
	}
	s.wake, s.due = false, time.Time{}
	outcome, err := s.pass.Run(context.Background(), types.NamespacedName{Namespace: "default", Name: setKey.Name})
	if err != nil {
		s.wake = true
	}
	if s.told != nil && outcome.Plan != nil {
		s.told(outcome)
	}
	if s.trace {
		fmt.Printf("--- %s pending %q after %s err %v\n", s.Now().Format("15:04:05"), outcome.Pending, outcome.After, err)
		if outcome.Plan != nil {
			fmt.Print(outcome.Plan)
		}
	}
	if s.tells {
		outcome.within(outcome.Tell)
	}
	if outcome.After > 0 {
		s.due = s.Now().Add(outcome.After)
	}
	return true
}

func (s *simulated) deliver(n int) {
	if s.Deliver(n) {
		s.wake = true
	}
}

func (s *simulated) set() *appsv1beta1.CloneSet {
	set, _ := s.Get(setKey).(*appsv1beta1.CloneSet)
	return set
}

func (s *simulated) pods() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, object := range s.List("Pod", false) {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

func (s *simulated) active() []*corev1.Pod {
	return slices.DeleteFunc(s.pods(), func(pod *corev1.Pod) bool { return !Active(pod) })
}

// change changes the set as a user does.
func (s *simulated) change(change func(*appsv1beta1.CloneSet)) {
	s.Change(setKey, func(o client.Object) {
		set := o.(*appsv1beta1.CloneSet)
		change(set)
		set.Generation++
	})
}

// Owner implements Reader.
func (s *simulated) Owner(context.Context, types.NamespacedName) (types.UID, error) {
	if set, ok := s.Cached(setKey).(*appsv1beta1.CloneSet); ok {
		return set.UID, nil
	}
	return "", nil
}

// Snapshot implements Reader.
func (s *simulated) Snapshot(context.Context, types.NamespacedName) (*Snapshot, error) {
	set, ok := s.Cached(setKey).(*appsv1beta1.CloneSet)
	if !ok {
		return nil, nil
	}
	snapshot := &Snapshot{Set: set}
	owned := func(o client.Object) bool { c := metav1.GetControllerOfNoCopy(o); return c != nil && c.UID == set.UID }
	for _, o := range s.List("Pod", true) {
		switch {
		case owned(o):
			snapshot.Pods = append(snapshot.Pods, o.(*corev1.Pod))
		case metav1.GetControllerOfNoCopy(o) == nil && o.GetLabels()["app"] == "web":
			snapshot.Orphans = append(snapshot.Orphans, o.GetName())
		}
	}
	snapshot.NodeLabels, snapshot.LostNodes = s.nodeLabels, s.lostNodes
	for _, o := range s.List("PersistentVolumeClaim", true) {
		claim := o.(*corev1.PersistentVolumeClaim)
		switch {
		case owned(o):
			snapshot.Claims = append(snapshot.Claims, claim)
		case slices.Contains(indexByController(claim), handed):
			snapshot.HandedClaims = append(snapshot.HandedClaims, claim)
		}
	}
	for _, name := range snapshot.unmanned() {
		if pod, ok := s.Cached(podKey(name)).(*corev1.Pod); ok {
			snapshot.Strangers = append(snapshot.Strangers, pod)
		}
	}
	for _, o := range s.List("ControllerRevision", true) {
		if controller := metav1.GetControllerOfNoCopy(o); !owned(o) && (controller != nil || o.GetLabels()["app"] != "web") {
			continue
		}
		snapshot.Revisions = append(snapshot.Revisions, o.(*appsv1.ControllerRevision))
	}
	if snapshot.PullJobsServed = s.servesJobs; s.servesJobs {
		for _, o := range s.List("ImagePullJob", true) {
			if owned(o) {
				snapshot.PullJobs = append(snapshot.PullJobs, metadataOf(o))
			}
		}
	}
	return snapshot, nil
}

func keyOf(object ownwrites.Object) simulation.Key {
	return simulation.Key{Kind: string(object.Kind), Name: object.Name}
}

// Cached implements Reader.
func (s simReader) Cached(_ context.Context, object ownwrites.Object) (metav1.Object, error) {
	if found := s.Cluster.Cached(keyOf(object)); found != nil {
		return found, nil
	}
	return nil, nil
}

// Live implements Reader.
func (s simReader) Live(_ context.Context, object ownwrites.Object) (metav1.Object, error) {
	if s.Dead() {
		return nil, simulation.ErrDead
	}
	if found := s.Get(keyOf(object)); found != nil {
		return found, nil
	}
	return nil, nil
}

type simReader struct{ *simulated }

type simWriter struct{ s *simulated }

func podKey(name string) simulation.Key { return simulation.Key{Kind: "Pod", Name: name} }

func typed[T any](document map[string]any) T {
	var object T
	encoded, err := json.Marshal(document)
	if err == nil {
		err = json.Unmarshal(encoded, &object)
	}
	if err != nil {
		panic(err)
	}
	return object
}

func as[T client.Object](object client.Object, err error) (T, error) {
	typed, _ := object.(T)
	return typed, err
}

func (w simWriter) GetPod(_ context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	return as[*corev1.Pod](w.s.Live(podKey(name.Name)))
}

func (w simWriter) CreatePod(_ context.Context, document map[string]any) (*corev1.Pod, error) {
	pod := typed[corev1.Pod](document)
	return as[*corev1.Pod](w.s.Create(podKey(pod.Name), &pod))
}

func (w simWriter) PatchPod(_ context.Context, pod *corev1.Pod, body []byte, subresource string) (*corev1.Pod, error) {
	return as[*corev1.Pod](w.s.Patch(podKey(pod.Name), body, subresource))
}

func (w simWriter) DeletePod(_ context.Context, pod *corev1.Pod) error {
	return w.s.Delete(podKey(pod.Name), pod)
}

func claimKey(name string) simulation.Key {
	return simulation.Key{Kind: "PersistentVolumeClaim", Name: name}
}

func (w simWriter) CreateClaim(_ context.Context, document map[string]any) (*corev1.PersistentVolumeClaim, error) {
	claim := typed[corev1.PersistentVolumeClaim](document)
	return as[*corev1.PersistentVolumeClaim](w.s.Create(claimKey(claim.Name), &claim))
}

func (w simWriter) PatchClaim(_ context.Context, claim *corev1.PersistentVolumeClaim, body []byte) (*corev1.PersistentVolumeClaim, error) {
	return as[*corev1.PersistentVolumeClaim](w.s.Patch(claimKey(claim.Name), body, ""))
}

func (w simWriter) DeleteClaim(_ context.Context, claim *corev1.PersistentVolumeClaim) error {
	return w.s.Delete(claimKey(claim.Name), claim)
}

func revisionKey(name string) simulation.Key {
	return simulation.Key{Kind: "ControllerRevision", Name: name}
}

func (w simWriter) GetRevision(_ context.Context, name types.NamespacedName) (*appsv1.ControllerRevision, error) {
	return as[*appsv1.ControllerRevision](w.s.Live(revisionKey(name.Name)))
}

func (w simWriter) CreateRevision(_ context.Context, r *appsv1.ControllerRevision) (*appsv1.ControllerRevision, error) {
	return as[*appsv1.ControllerRevision](w.s.Create(revisionKey(r.Name), r.DeepCopy()))
}

func (w simWriter) PatchRevision(_ context.Context, r *appsv1.ControllerRevision, body []byte) (*appsv1.ControllerRevision, error) {
	return as[*appsv1.ControllerRevision](w.s.Patch(revisionKey(r.Name), body, ""))
}

func (w simWriter) DeleteRevision(_ context.Context, r *appsv1.ControllerRevision) error {
	return w.s.Delete(revisionKey(r.Name), r)
}

func jobKey(name string) simulation.Key { return simulation.Key{Kind: "ImagePullJob", Name: name} }

func metadataOf(o client.Object) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		Labels: o.GetLabels(), OwnerReferences: o.GetOwnerReferences(), DeletionTimestamp: o.GetDeletionTimestamp()}}
}

func (w simWriter) CreatePullJob(_ context.Context, document map[string]any) error {
	job := &unstructured.Unstructured{Object: document}
	_, err := w.s.Create(jobKey(job.GetName()), job.DeepCopy())
	return err
}

func (w simWriter) DeletePullJob(_ context.Context, job *metav1.PartialObjectMetadata) error {
	live, err := w.s.Live(jobKey(job.Name))
	if err != nil {
		return err
	}
	if live.GetUID() != job.UID {
		return apierrors.NewConflict(schema.GroupResource{}, job.Name, errors.New("another job"))
	}
	return w.s.Delete(jobKey(job.Name), live)
}

func (w simWriter) PatchSet(_ context.Context, _ *appsv1beta1.CloneSet, body []byte, subresource string) (*appsv1beta1.CloneSet, error) {
	return as[*appsv1beta1.CloneSet](w.s.Patch(setKey, body, subresource))
}

// makeSet returns a set of nginx pods; options change it.
func makeSet(replicas int32, options ...func(*appsv1beta1.CloneSet)) *appsv1beta1.CloneSet {
	set := &appsv1beta1.CloneSet{}
	set.Name, set.Namespace = "web", "default"
	set.Spec.Replicas = &replicas
	set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	set.Spec.UpdateStrategy.Type = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
	set.Spec.UpdateStrategy.RollingUpdate = &appsv1beta1.RollingUpdateCloneSetStrategy{
		PodUpdatePolicy: appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy, MaxUnavailable: number(1)}
	set.Spec.ScaleStrategy.EnablePVCReuse = true
	setTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":"nginx:1"}]}}`)
	for _, option := range options {
		option(set)
	}
	return set
}

func setTemplate(set *appsv1beta1.CloneSet, document string) {
	if err := json.Unmarshal([]byte(document), &set.Spec.Template); err != nil {
		panic(err)
	}
}

func number(n int) *intstr.IntOrString { v := intstr.FromInt32(int32(n)); return &v }

func text(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }

func image(image string) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) {
		setTemplate(set, fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"nginx","image":%q}]}}`, image))
	}
}

func rolling(change func(*appsv1beta1.RollingUpdateCloneSetStrategy)) func(*appsv1beta1.CloneSet) {
	return func(set *appsv1beta1.CloneSet) { change(set.Spec.UpdateStrategy.RollingUpdate) }
}

// settle lets everything that is under way come to rest: no faults, caches that keep up, kubelets that work.
func (s *simulated) settle(limit int) error {
	s.Faults = simulation.Faults{}
	if s.Dead() {
		s.startManager(s.pass.Features)
	}
	for range limit {
		if s.round() {
			continue
		}
		if s.Dead() {
			return fmt.Errorf("the manager died at rest")
		}
		if s.due.IsZero() {
			return nil
		}
		s.Pass(max(s.due.Sub(s.Now()), 0))
	}
	return fmt.Errorf("no rest after %d rounds: %s", limit, s.describe())
}

// round lets everybody act once, and tells whether anything happened.
func (s *simulated) round() bool {
	s.deliver(1 << 20)
	s.CollectGarbage()
	moved := s.manage()
	if s.Dead() {
		return false
	}
	for _, pod := range s.pods() {
		if s.node.Step(pod.Name) {
			moved = true
		}
	}
	if s.others != nil && s.others() {
		moved = true
	}
	return moved || s.Undelivered() > 0 || s.wake
}

func (s *simulated) describe() string {
	var b strings.Builder
	if snapshot, _ := s.Snapshot(context.Background(), types.NamespacedName{}); snapshot != nil {
		snapshot.Now, snapshot.Random, snapshot.Features = s.Now(), s.Rand.IntN, s.pass.Features
		b.WriteString("\n" + Make(*snapshot).String())
	}
	for _, pod := range s.pods() {
		fmt.Fprintf(&b, "%s labels %v deleted %v images", pod.Name, pod.Labels[pub.ControllerRevisionHash], pod.DeletionTimestamp != nil)
		for i, c := range pod.Spec.Containers {
			fmt.Fprintf(&b, " %s", c.Image)
			if i < len(pod.Status.ContainerStatuses) {
				fmt.Fprintf(&b, " (runs %s ready %v)", pod.Status.ContainerStatuses[i].Image, pod.Status.ContainerStatuses[i].Ready)
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}
