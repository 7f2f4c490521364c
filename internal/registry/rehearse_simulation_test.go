package registry

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/kinds/sidecarset/sidecarsettest"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/rehearsal"
	"github.com/afloat-project/afloat/internal/simulation"
	"github.com/afloat-project/afloat/internal/simulation/simulationtest"
)

// wishes are what users of a world want, in the words of all kinds.
type wishes struct {
	Kind, Policy, Order                               string
	Replicas, Image, Env, Partition, Unavailable, Min int
	Surge, Grace                                      int
	Paused, Hook, Claims                              bool
}

const manifest = `
metadata: {namespace: shop, name: web}
spec:
{{- if eq .Kind "SidecarSet"}}
  selector: {matchLabels: {app: web}}
  containers: [{name: mesh, image: "mesh:{{.Image}}"}]
  updateStrategy: {type: RollingUpdate, paused: {{.Paused}}, partition: {{.Partition}}, maxUnavailable: {{.Unavailable}}}
{{- else}}
  selector: {matchLabels: {app: web}}
{{- if .Hook}}
  lifecycle: {inPlaceUpdate: {labelsHandler: {traffic: "on"}}}
{{- end}}
{{- if ne .Kind "DaemonSet"}}
  replicas: {{.Replicas}}
{{- end}}
{{- if eq .Kind "CloneSet"}}
  minReadySeconds: {{.Min}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: {{.Policy}}, partition: {{.Partition}}, maxUnavailable: {{.Unavailable}},
    maxSurge: {{.Surge}}, paused: {{.Paused}}, inPlaceUpdateStrategy: {gracePeriodSeconds: {{.Grace}}}}}
{{- end}}
{{- if eq .Kind "StatefulSet"}}
  serviceName: web
  podManagementPolicy: {{.Order}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: {{.Policy}}, partition: {{.Partition}}, maxUnavailable: {{.Unavailable}},
    paused: {{.Paused}}, minReadySeconds: {{.Min}}, inPlaceUpdateStrategy: {gracePeriodSeconds: {{.Grace}}}}}
{{- end}}
{{- if eq .Kind "DaemonSet"}}
  minReadySeconds: {{.Min}}
  updateStrategy: {type: RollingUpdate, rollingUpdate: {rollingUpdateType: {{if eq .Policy "ReCreate"}}Standard{{else}}InPlaceIfPossible{{end}},
    partition: {{.Partition}}, maxUnavailable: {{.Unavailable}}, paused: {{.Paused}}}}
{{- end}}
{{- if and .Claims (ne .Kind "DaemonSet")}}
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]
{{- end}}
  template:
    metadata: {labels: {app: web}, annotations: {config: "{{.Env}}"}}
    spec:
      restartPolicy: Always
      readinessGates: [{conditionType: InPlaceUpdateReady}]
      containers: [{name: app, image: "nginx:{{.Image}}"}, {name: log, image: "log:1"}]
{{- end}}
`

var manifests = template.Must(template.New("").Parse(manifest))

// world is a cluster with a manager, of which copies are rehearsed.
type world struct {
	*rehearsal.Stage
	faulty *simulation.Cluster // the stage, for the manager
	t      *testing.T
	r      *rand.Rand
	kind   *framework.Kind
	key    simulation.Key
	wishes wishes
	node   *simulation.Node
	env    *framework.Environment
	player rehearsal.Player
	more   map[types.UID]int32
}

func (w *world) object(wanted wishes) client.Object {
	var text bytes.Buffer
	if err := manifests.Execute(&text, wanted); err != nil {
		w.t.Fatal(err)
	}
	object := map[string]client.Object{"CloneSet": &appsv1beta1.CloneSet{}, "StatefulSet": &appsv1beta1.StatefulSet{},
		"DaemonSet": &appsv1beta1.DaemonSet{}, "SidecarSet": &appsv1beta1.SidecarSet{}}[wanted.Kind]
	if err := yaml.UnmarshalStrict(text.Bytes(), object); err != nil {
		w.t.Fatal(err, text.String())
	}
	if set, ok := object.(*appsv1beta1.SidecarSet); ok {
		set.Namespace = ""
		sidecarsettest.Stamp(set)
	}
	return object
}

func newWorld(t *testing.T, seed uint64, kind string) *world {
	r := rand.New(rand.NewPCG(seed, 7))
	gates, err := features.Parse([]string{"", "PodUnavailableBudgetUpdateGate=true"}[r.IntN(2)])
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Stage: rehearsal.New(start), t: t, r: r, kind: kindNamed(t, kind), more: map[types.UID]int32{},
		env: &framework.Environment{Gates: gates, Minor: 36, Namespace: "kruise-system",
			Resizes: func(featuregate.Feature) (bool, error) { return false, nil }}}
	w.Rand = rand.New(rand.NewPCG(seed, 1))
	w.faulty = simulation.Over(w.Cluster, w.Rand)
	w.wishes = wishes{Kind: kind, Policy: []string{"ReCreate", "InPlaceIfPossible", "InPlaceIfPossible"}[r.IntN(3)],
		Order: []string{"OrderedReady", "Parallel"}[r.IntN(2)], Replicas: 1 + r.IntN(6), Unavailable: 1 + r.IntN(3), Min: 10 * r.IntN(2),
		Grace: 5 * r.IntN(2), Hook: r.IntN(5) == 0, Claims: r.IntN(3) == 0}
	if kind != "StatefulSet" {
		w.wishes.Surge = r.IntN(2)
	}
	w.node = w.Kubelet
	w.Complete = completes
	for i := range 1 + r.IntN(5) {
		w.Add("Node", &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i)},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	set := w.object(w.wishes)
	w.Add(kind, set)
	w.key = w.KeyOf(kind, set)
	if kind == "SidecarSet" {
		for i := range w.wishes.Replicas {
			pod := sidecarsettest.Pod(set.(*appsv1beta1.SidecarSet), fmt.Sprint("web-", i))
			w.Add("Pod", pod)
			w.node.Found(pod)
		}
	}
	if r.IntN(3) == 0 {
		budget := &policyv1beta1.PodUnavailableBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "budget"}}
		budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
		budget.Spec.MaxUnavailable = new(intstr.FromInt32(int32(1 + r.IntN(2))))
		budget.Status.TotalReplicas = int32(w.wishes.Replicas)
		w.Add("PodUnavailableBudget", budget)
	}
	w.start()
	return w
}

// start starts a manager, which knows all there is.
func (w *world) start() {
	w.faulty.Restart()
	var err error
	if w.player, err = Rehearse(w.t.Context(), w.env, w.kind, w.Stage, w.more); err != nil {
		w.t.Fatal(err)
	}
	w.count()
}

func (w *world) count() {
	if w.Recount != nil {
		if _, err := w.Recount(w.t.Context()); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) pass() *rehearsal.Pass {
	object := w.Cached(w.key)
	if object == nil {
		return nil
	}
	pass, err := w.player(w.t.Context(), client.ObjectKeyFromObject(object), object.GetUID())
	if err != nil && !w.faulty.Dead() {
		w.t.Fatal(err)
	}
	if w.faulty.Dead() {
		w.faulty.Revive()
		w.start()
	}
	return pass
}

func completes(_ context.Context, _ string, template []byte) ([]byte, error) { return template, nil }

// act lets something happen.
func (w *world) act() {
	pods := w.List("Pod", false)
	switch w.r.IntN(8) {
	case 0, 1:
		w.Deliver(1 + w.r.IntN(10))
		w.pass()
	case 2, 3, 4:
		for range 1 + w.r.IntN(10) {
			if len(pods) > 0 {
				w.node.Step(w.KeyOf("Pod", pods[w.r.IntN(len(pods))]).Name)
			}
		}
		w.CollectGarbage()
		w.count()
	case 5:
		w.Pass(time.Duration(w.r.IntN(8)) * time.Second)
	case 6:
		w.wish(w.other())
	case 7:
		if len(pods) > 0 && w.r.IntN(3) == 0 {
			w.node.Crash(w.KeyOf("Pod", pods[w.r.IntN(len(pods))]).Name)
		}
	}
}

// other is something else that users may want.
func (w *world) other() wishes {
	next := w.wishes
	switch w.r.IntN(6) {
	case 0, 1:
		next.Image = w.r.IntN(4)
	case 2:
		next.Env = w.r.IntN(3)
	case 3:
		next.Replicas = w.r.IntN(7)
	case 4:
		next.Partition = w.r.IntN(3)
	case 5:
		next.Paused = w.r.IntN(3) == 0
	}
	return next
}

func (w *world) wish(wanted wishes) {
	if wanted.Kind != "DaemonSet" && wanted.Kind != "SidecarSet" {
		w.more[w.Get(w.key).GetUID()] += int32(wanted.Replicas - w.wishes.Replicas) //nolint:gosec // they are small
	}
	w.wishes = wanted
	become(w.Stage, w.key, w.object(wanted))
	w.count()
}

func become(s *rehearsal.Stage, key simulation.Key, wanted client.Object) {
	s.Change(key, func(o client.Object) {
		from, to := reflect.ValueOf(wanted).Elem(), reflect.ValueOf(o).Elem()
		to.FieldByName("Spec").Set(from.FieldByName("Spec"))
		o.SetAnnotations(wanted.GetAnnotations())
		o.SetGeneration(o.GetGeneration() + 1)
	})
}

// copied is a stage with all that there is in the world, as the plugin reads it.
func (w *world) copied(more map[types.UID]int32) (*rehearsal.Stage, rehearsal.Player) {
	s := rehearsal.New(w.Now())
	s.Complete = completes
	for _, kind := range []string{"Node", "PodUnavailableBudget", w.kind.Name, "ControllerRevision", "PersistentVolumeClaim", "Pod"} {
		for _, object := range w.List(kind, false) {
			s.Add(kind, object.DeepCopyObject().(client.Object))
		}
	}
	player, err := Rehearse(w.t.Context(), w.env, w.kind, s, more)
	if err != nil {
		w.t.Fatal(err)
	}
	return s, player
}

// decided are the verdicts of a pass about pods that are there, in words. A manager believes for two seconds
// that a pod may be there which it created and deleted before the caches showed it.
func (w *world) decided(pass *rehearsal.Pass) string {
	if pass == nil {
		return "nothing"
	}
	var text strings.Builder
	fmt.Fprintln(&text, pass.UpdateRevision, pass.Waiting, len(pass.Creations))
	for _, v := range pass.Verdicts {
		if w.Get(simulation.Key{Kind: "Pod", Name: v.Namespace + "/" + v.Pod}) != nil {
			fmt.Fprintln(&text, v)
		}
	}
	return text.String()
}

// TestSimulatedWhy (OPS-190): what the plugin says of each pod is what the manager decides next, in whatever
// state the world is: after lag, deaths of the manager, changes of mind, crashes, under budgets.
func TestSimulatedWhy(t *testing.T) {
	simulationtest.Some(t, 300, 4, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, []string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet"}[seed%4])
		for range 20 {
			w.faulty.Faults.Die = 0.05
			for range w.r.IntN(12) {
				w.act()
			}
			w.faulty.Faults.Die = 0
			w.Deliver(1 << 20)
			s, player := w.copied(nil)
			asked, err := s.Ask(t.Context(), player, w.key)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w.decided(w.pass()), w.decided(asked)); diff != "" {
				t.Fatalf("the manager (-) and why (+) at %s, %+v:\n%s", w.Now().Format(time.TimeOnly), w.wishes, diff)
			}
		}
	})
}

// fates are what became of the pods that there were, by name, and how many pods there are in the end.
func fates(before, after []client.Object) string {
	now := map[types.UID]*corev1.Pod{}
	for _, object := range after {
		now[object.GetUID()] = object.(*corev1.Pod)
	}
	var text strings.Builder
	for _, object := range before {
		fate := "gone"
		if pod := now[object.GetUID()]; pod != nil {
			fate = pod.Labels[pub.ControllerRevisionHash] + " " + pod.Spec.Containers[0].Image + fmt.Sprint(len(pod.Spec.Containers))
		}
		fmt.Fprintln(&text, object.GetName(), fate)
	}
	fmt.Fprintln(&text, len(after))
	return text.String()
}

// TestSimulatedPlan (OPS-191): what the plugin foresees of each pod is what becomes of it when the manifest
// is applied, the pods that are touched come in waves in the foreseen order, and those that are not foreseen
// are left alone.
func TestSimulatedPlan(t *testing.T) {
	simulationtest.Some(t, 200, 4, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, []string{"CloneSet", "StatefulSet", "DaemonSet", "SidecarSet"}[seed%4])
		for range 6 {
			for range w.r.IntN(30) {
				w.act()
			}
			w.settle()
			if w.unready() != "" {
				continue // a forecast promises nothing about a pod that is not ready, and in this world it may become so
			}
			wanted := w.other()
			more := map[types.UID]int32{}
			if w.kind.Name == "CloneSet" || w.kind.Name == "StatefulSet" {
				more[w.Get(w.key).GetUID()] = int32(wanted.Replicas - w.wishes.Replicas) //nolint:gosec // they are small
			}
			s, player := w.copied(more)
			become(s, w.key, w.object(wanted))
			forecast, err := s.Play(t.Context(), player, w.key)
			if err != nil {
				t.Fatal(err)
			}
			before, touched := w.List("Pod", false), map[string]int{}
			w.faulty.BeforeWrite = func(write simulation.Write, old, now client.Object) {
				if touched[write.Key.Name] == 0 && takes(old, now) {
					touched[write.Key.Name] = len(touched) + 1
				}
			}
			w.wish(wanted)
			w.settle()
			w.faulty.BeforeWrite = nil
			if diff := cmp.Diff(fates(before, w.List("Pod", false)), fates(before, s.List("Pod", false))); diff != "" {
				t.Fatalf("the world (-) and the forecast (+), %+v:\n%s", wanted, diff)
			}
			// Waves of the same moment may change places: a pass of the manager may wait for the pace of its
			// status.
			first, last, seen, at := 0, 0, map[string]bool{}, time.Duration(0)
			for _, wave := range forecast.Waves {
				if wave.After-at >= time.Second {
					first, at = last, wave.After
				}
				for _, step := range wave.Steps {
					name := step.Namespace + "/" + step.Pod
					if step.Created || seen[name] || touched[name] == 0 {
						continue
					}
					seen[name] = true
					if touched[name] < first {
						t.Fatalf("%s came earlier than foreseen: %v\n%s", name, touched, told(forecast))
					}
					last = max(last, touched[name])
				}
			}
		}
	})
}

// takes tells whether a write begins to replace a pod, or to change its images.
func takes(old, now client.Object) bool {
	before, ok := old.(*corev1.Pod)
	after, still := now.(*corev1.Pod)
	if !ok || !still {
		return ok
	}
	_, marked := after.Labels[pub.SpecifiedDelete]
	return marked || !slices.EqualFunc(before.Spec.Containers, after.Spec.Containers, func(a, b corev1.Container) bool { return a.Image == b.Image })
}

// unready is a pod that is not ready, empty if all are.
func (w *world) unready() string {
	for _, object := range w.List("Pod", false) {
		if pod, ok := object.(*corev1.Pod); ok && !readiness.Ready(pod) {
			return pod.Name
		}
	}
	return ""
}

// settle lets everything come to rest: the manager, kubelets, whoever answers hooks, and time. Nothing is
// left that is not ready.
func (w *world) settle() {
	for range 3 {
		f, err := w.Play(w.t.Context(), w.player, w.key)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, object := range w.List("Pod", false) {
			for w.node.Step(w.KeyOf("Pod", object).Name) {
			}
		}
		if len(f.Waves) == 0 && w.Undelivered() == 0 {
			return
		}
	}
}
