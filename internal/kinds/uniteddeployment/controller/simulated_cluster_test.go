package controller

import (
	"context"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/reconcile/podapply"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// world is a cluster with a UnitedDeployment, its manager, the controllers of its children, and users.
type world struct {
	*simulationtest.World[*appsv1beta1.UnitedDeployment]
	t     *testing.T
	kinds []uniteddeployment.Kind // those that are played: one of a name
	loop  *reconcile.Loop
	// room is how many pods a zone has room for; a zone is a subset. One that is not in it has room for all.
	room map[string]int
	// plans are those that were news.
	plans []string
	// versions are those of the UnitedDeployment.
	versions []*appsv1beta1.UnitedDeployment
	// still: all others wait. fresh numbers what is made.
	still bool
	fresh int
}

var key = simulation.Key{Kind: uniteddeployment.Name, Name: "web"}

// templates are texts of templates by kind, with a place for the image.
var templates = map[uniteddeployment.Kind]string{
	uniteddeployment.StatefulSet: `{statefulSetTemplate: {metadata: {labels: {app: web}, annotations: {note: %[1]s}}, spec: {serviceName: web, future: 1,
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: %[1]s}]}}}}}`,
	uniteddeployment.AdvancedStatefulSet: `{advancedStatefulSetTemplate: {metadata: {labels: {app: web}}, spec: {serviceName: web,
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: %s}]}}}}}`,
	uniteddeployment.CloneSet: `{cloneSetTemplate: {metadata: {labels: {app: web}}, spec: {
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: %s}]}}}}}`,
	uniteddeployment.Deployment: `{deploymentTemplate: {metadata: {labels: {app: web}}, spec: {
		template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: %s}]}}}}}`,
}

// template is that of a kind, with that image.
func template(t *testing.T, kind uniteddeployment.Kind, image string) (template appsv1beta1.SubsetTemplate) {
	t.Helper()
	if err := yaml.Unmarshal(fmt.Appendf(nil, templates[kind], image), &template); err != nil {
		t.Fatal(err)
	}
	return template
}

// united is a UnitedDeployment with so many replicas and subsets of these names.
func united(t *testing.T, kind uniteddeployment.Kind, replicas int32, subsets ...string) *appsv1beta1.UnitedDeployment {
	t.Helper()
	u := &appsv1beta1.UnitedDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	u.Spec.Template = template(t, kind, "one")
	u.Spec.Replicas, u.Spec.Selector = &replicas, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	for _, name := range subsets {
		u.Spec.Topology.Subsets = append(u.Spec.Topology.Subsets, appsv1beta1.Subset{Name: name, NodeSelectorTerm: corev1.NodeSelectorTerm{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}})
	}
	return u
}

func newWorld(t *testing.T, seed uint64, kinds []uniteddeployment.Kind, u *appsv1beta1.UnitedDeployment) *world {
	w := &world{
		World: simulationtest.NewWorld[*appsv1beta1.UnitedDeployment](seed, key),
		t:     t,
		kinds: kinds,
		room:  map[string]int{},
	}
	w.NewManager, w.EnvironmentStep, w.Describe = w.newManager, w.environmentStep, w.describe
	w.Reconcile = func() (time.Duration, error) {
		result, err := w.loop.Reconcile(t.Context(), reconcile.Request("shop", "web"))
		return result.RequeueAfter, err
	}
	w.Apart, w.BeforeWrite, w.Delivered = true, w.check, w.delivered
	w.Happened = func(of simulation.Key, gone bool) {
		if of == key && !gone {
			w.versions = append(w.versions, w.united())
		}
	}
	for _, kind := range kinds {
		if err := w.IndexField(t.Context(), object(kind), byOwner, indexOwner); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.IndexField(t.Context(), &appsv1.ReplicaSet{}, byDeployment, indexDeployment); err != nil {
		t.Fatal(err)
	}
	if err := podapply.IndexRevisions(t.Context(), w.Cluster); err != nil {
		t.Fatal(err)
	}
	w.Store(key, u)
	w.Start()
	return w
}

// delivered calls the manager as its watches do.
func (w *world) delivered(before, after client.Object) {
	for _, o := range []client.Object{before, after} {
		if o == nil {
			continue
		}
		switch o.(type) {
		case *appsv1beta1.UnitedDeployment:
			w.Queue.Add()
		case *corev1.Pod:
			if before != nil && after != nil && !podChanges.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
				return
			}
			if len(w.manager().ofPod(w.t.Context(), o)) > 0 {
				w.Queue.Add()
			}
		case *appsv1.ReplicaSet:
			if before == nil && setChanges.Create(event.CreateEvent{Object: o}) && len(w.manager().ofPod(w.t.Context(), o)) > 0 {
				w.Queue.Add()
			}
		case *appsv1.StatefulSet, *appsv1beta1.StatefulSet, *appsv1beta1.CloneSet, *appsv1.Deployment:
			if before != nil && after != nil && !changed(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) {
				return
			}
			if len(w.manager().ofChild(w.t.Context(), o)) > 0 {
				w.Queue.Add()
			}
		}
	}
}

// manager is one that reads the caches for its watches.
func (w *world) manager() *Reconciler {
	r := &Reconciler{API: w.API(), Events: w, Pods: w.Pods(), meters: newMeters()}
	for _, kind := range w.kinds {
		r.served.Add(kind)
	}
	return r
}

func (w *world) newManager() {
	r := w.manager()
	w.loop = r.controller().Loop(nil)
	pass := w.loop.Pass
	w.loop.Pass = func(ctx context.Context, name types.NamespacedName, owner types.UID) (reconcile.Outcome, error) {
		done, err := pass(ctx, name, owner)
		if text := w.Now().Format(time.TimeOnly) + "\n" + done.Headline; done.Headline != "" && (len(w.plans) == 0 || !strings.HasSuffix(w.plans[len(w.plans)-1], "\n"+done.Headline)) {
			w.plans = append(w.plans, text)
		}
		return done, err
	}
}

// Event implements reconcile.Recorder.
func (w *world) Event(_ client.Object, _, reason, message string) {
	w.Recorded = append(w.Recorded, fmt.Sprintf("%s %s: %s", w.Now().Format(time.TimeOnly), reason, message))
}

func (w *world) united() *appsv1beta1.UnitedDeployment { return w.Object() }

// children are those that are there, of all kinds.
func (w *world) children() (children []*uniteddeployment.Child) {
	for _, kind := range w.kinds {
		for _, o := range w.List(kind.Name(), false) {
			children = append(children, uniteddeployment.ChildOf(o))
		}
	}
	return children
}

// pods are those of a child.
func (w *world) pods(c *uniteddeployment.Child) (pods []*corev1.Pod) {
	for _, o := range w.List("Pod", false) {
		if strings.HasPrefix(o.GetName(), c.Object.GetName()+"-") {
			pods = append(pods, o.(*corev1.Pod))
		}
	}
	return pods
}

func (w *world) describe() string {
	var text strings.Builder
	u := w.united()
	fmt.Fprintf(&text, "%s %s\n", w.Now(), strings.Join(w.Recorded, "\n"))
	if u != nil {
		fmt.Fprintf(&text, "replicas %d strategy %+v room %v\n", uniteddeployment.Replicas(u.Spec.Replicas, u.Spec.Topology.Subsets), u.Spec.Topology.ScheduleStrategy, w.room)
		for _, s := range u.Spec.Topology.Subsets {
			fmt.Fprintf(&text, " subset %s %v %v %v\n", s.Name, s.Replicas, s.MinReplicas, s.MaxReplicas)
		}
		fmt.Fprintf(&text, "status %+v\n", u.Status)
	}
	for _, c := range w.children() {
		fmt.Fprintf(&text, "%s %s %d/%d/%d %s\n", c, c.Subset, c.Replicas, c.Total, c.Ready, c.Revision)
		for _, pod := range w.pods(c) {
			fmt.Fprintf(&text, "  %s ready=%t %v %v\n", pod.Name, readiness.Ready(pod), pod.Labels, pod.DeletionTimestamp)
		}
	}
	return text.String()
}

// check holds each write of the manager against what it may do, and numbers specs as the API server does.
func (w *world) check(write simulation.Write, before, after client.Object) {
	if os.Getenv("TRACE") != "" {
		w.t.Logf("%s %+v", w.Now().Format(time.TimeOnly), write)
	}
	if before != nil && after != nil && !reflect.DeepEqual(specOf(before), specOf(after)) {
		after.SetGeneration(before.GetGeneration() + 1)
	}
	seen, _ := w.Cached(key).(*appsv1beta1.UnitedDeployment)
	if !slices.Contains([]string{"CloneSet", "StatefulSet", "Deployment"}, write.Key.Kind) || seen == nil {
		return
	}
	switch write.Verb {
	case "create":
		c := uniteddeployment.ChildOf(after)
		for _, other := range w.children() {
			if other.Kind == c.Kind && other.Subset == c.Subset && uniteddeployment.OwnerOf(other.Object) == uniteddeployment.OwnerOf(after) {
				w.t.Errorf("UD-064: subset %s gets a second child", c.Subset)
			}
		}
	case "delete":
		c := uniteddeployment.ChildOf(before)
		wanted := true
		for _, u := range w.versions { // an answer may have shown a newer one than the cache has
			if u.Generation < seen.Generation {
				continue
			}
			template, err := uniteddeployment.TemplateOf(&u.Spec.Template)
			wanted = wanted && err == nil && c.Kind == template.Kind &&
				slices.ContainsFunc(u.Spec.Topology.Subsets, func(s appsv1beta1.Subset) bool { return s.Name == c.Subset })
		}
		if wanted && len(w.pods(c)) > 0 {
			w.t.Errorf("UD-063, UD-065: %s is deleted, which subset %s needs", c, c.Subset)
		}
	}
}

func specOf(o client.Object) any {
	switch o := o.(type) {
	case *appsv1.StatefulSet:
		return o.Spec
	case *appsv1beta1.StatefulSet:
		return o.Spec
	case *appsv1beta1.CloneSet:
		return o.Spec
	case *appsv1.Deployment:
		return o.Spec
	}
	return nil
}

// environmentStep lets the controllers of children, the scheduler, kubelets and the garbage collector act.
func (w *world) environmentStep() (moved bool) {
	if w.still {
		return false
	}
	w.CollectGarbage()
	u := w.united()
	for _, c := range w.children() {
		if u == nil || uniteddeployment.OwnerOf(c.Object) != "" && uniteddeployment.OwnerOf(c.Object) != u.UID {
			w.EndGracefully(w.keyOf(c))
			moved = true
			continue
		}
		moved = w.control(c) || moved
	}
	alive := map[string]bool{}
	for _, c := range w.children() {
		alive[string(c.Object.GetUID())] = true
	}
	for _, o := range w.List("Pod", false) {
		pod := o.(*corev1.Pod)
		switch {
		case pod.DeletionTimestamp != nil || !alive[pod.Annotations["child"]]:
			w.Remove(w.KeyOf("Pod", pod))
			moved = true
		case pod.Spec.NodeName == "":
			moved = w.schedule(pod) || moved
		}
	}
	return moved
}

func (w *world) keyOf(c *uniteddeployment.Child) simulation.Key {
	return w.KeyOf(c.Kind.Name(), c.Object.(client.Object))
}

// schedule gives a pod a node if its zone has room.
func (w *world) schedule(pod *corev1.Pod) bool {
	zone := pod.Labels[uniteddeployment.SubsetName]
	taken := 0
	for _, o := range w.List("Pod", false) {
		if other := o.(*corev1.Pod); other.Labels[uniteddeployment.SubsetName] == zone && other.Spec.NodeName != "" {
			taken++
		}
	}
	room, limited := w.room[zone]
	full := limited && taken >= room
	if full && len(pod.Status.Conditions) > 0 {
		return false
	}
	w.Change(w.KeyOf("Pod", pod), func(o client.Object) {
		pod := o.(*corev1.Pod)
		if full {
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			return
		}
		pod.Spec.NodeName, pod.Status.Phase = "node", corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Now().Truncate(time.Second))}}
	})
	return true
}

// control lets the controller of a child act once.
func (w *world) control(c *uniteddeployment.Child) bool {
	pods := w.pods(c)
	active := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !readiness.Active(p) })
	slices.SortStableFunc(active, func(a, b *corev1.Pod) int { // what goes first
		x, y := readiness.Ready(a), readiness.Ready(b)
		switch {
		case x == y:
			return 0
		case y:
			return -1
		}
		return 1
	})
	hash := podLabels(c.Object)[uniteddeployment.RevisionHash]
	old := slices.DeleteFunc(slices.Clone(active), func(p *corev1.Pod) bool { return p.Labels[uniteddeployment.RevisionHash] == hash })
	partition := 0
	if c.Partition != nil {
		partition = int(*c.Partition)
	}
	switch {
	case len(active) < int(c.Replicas):
		w.create(c)
		return true
	case len(active) > int(c.Replicas):
		w.EndGracefully(w.KeyOf("Pod", active[0]))
		return true
	case len(old) > partition && (c.Ready == c.Total || !readiness.Ready(old[0])):
		w.EndGracefully(w.KeyOf("Pod", old[0]))
		return true
	}
	total, ready := int32(len(active)), int32(0)
	for _, pod := range active {
		if readiness.Ready(pod) {
			ready++
		}
	}
	if c.Total == total && c.Ready == ready && c.Observed {
		return false
	}
	w.Change(w.keyOf(c), func(o client.Object) {
		switch o := o.(type) {
		case *appsv1.StatefulSet:
			o.Status.Replicas, o.Status.ReadyReplicas, o.Status.ObservedGeneration = total, ready, o.Generation
		case *appsv1beta1.StatefulSet:
			o.Status.Replicas, o.Status.ReadyReplicas, o.Status.ObservedGeneration = total, ready, o.Generation
		case *appsv1beta1.CloneSet:
			o.Status.Replicas, o.Status.ReadyReplicas, o.Status.ObservedGeneration = total, ready, o.Generation
		case *appsv1.Deployment:
			o.Status.Replicas, o.Status.ReadyReplicas, o.Status.ObservedGeneration = total, ready, o.Generation
		}
	})
	return true
}

func podLabels(o any) map[string]string {
	switch o := o.(type) {
	case *appsv1.StatefulSet:
		return o.Spec.Template.Labels
	case *appsv1beta1.StatefulSet:
		return o.Spec.Template.Labels
	case *appsv1beta1.CloneSet:
		return o.Spec.Template.Labels
	case *appsv1.Deployment:
		return o.Spec.Template.Labels
	}
	return nil
}

// create creates a pod of a child, for a Deployment by way of a ReplicaSet.
func (w *world) create(c *uniteddeployment.Child) {
	w.fresh++
	owner := metav1.OwnerReference{APIVersion: c.Kind.APIVersion(), Kind: c.Kind.Name(), Name: c.Object.GetName(), UID: c.Object.GetUID(), Controller: new(true)}
	if c.Kind == uniteddeployment.Deployment {
		name := simulation.Key{Kind: "ReplicaSet", Name: c.Object.GetName() + "-rs"}
		set := w.Get(name)
		if set == nil || metav1.GetControllerOf(set).UID != c.Object.GetUID() {
			set = w.Store(name, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name.Name,
				Labels: maps.Clone(podLabels(c.Object)), OwnerReferences: []metav1.OwnerReference{owner}}})
		}
		owner = metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name.Name, UID: set.GetUID(), Controller: new(true)}
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", c.Object.GetName(), w.fresh),
		Labels: maps.Clone(podLabels(c.Object)), Annotations: map[string]string{"child": string(c.Object.GetUID())},
		OwnerReferences: []metav1.OwnerReference{owner}}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
	w.Store(w.KeyOf("Pod", pod), pod)
}

// quiet lets all act until nothing is left to do now.
func (w *world) quiet() {
	for range 5000 {
		if !w.Round() && !w.Dead() && (w.Queue.Due().IsZero() || w.Queue.Due().After(w.Now())) {
			return
		}
		if w.t.Failed() {
			return
		}
	}
	w.t.Fatal("no rest: ", w.describe())
}

// rest lets what is under way come to rest, without faults.
func (w *world) rest() {
	w.Faults = simulation.Faults{}
	if w.Dead() {
		w.Start()
	}
	for range 60 { // retries, doubts, windows and probations
		w.quiet()
		if !w.Queue.Wait() {
			break
		}
	}
	w.quiet()
}

// split is how many replicas the children of the subsets have, in their order.
func (w *world) split() (split []int32) {
	for _, s := range w.united().Spec.Topology.Subsets {
		n := int32(-1)
		for _, c := range w.children() {
			if c.Subset == s.Name {
				n = c.Replicas
			}
		}
		split = append(split, n)
	}
	return split
}

func number(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }

// setReplicas scales a child, as somebody does.
func setReplicas(o client.Object, n int32) {
	switch o := o.(type) {
	case *appsv1.StatefulSet:
		o.Spec.Replicas = &n
	case *appsv1beta1.StatefulSet:
		o.Spec.Replicas = &n
	case *appsv1beta1.CloneSet:
		o.Spec.Replicas = &n
	case *appsv1.Deployment:
		o.Spec.Replicas = &n
	}
}

// free lets pods be scheduled anew that could not be before.
func (w *world) free() {
	for _, o := range w.List("Pod", false) {
		if pod := o.(*corev1.Pod); pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			w.schedule(pod)
		}
	}
}
