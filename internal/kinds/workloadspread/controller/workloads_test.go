package controller

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/workloadkind"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread/workloadspreadtest"
	"github.com/afloat-project/afloat/internal/platform/slim"
)

var gameKind = schema.GroupVersionKind{Group: "game.example.com", Version: "v1", Kind: "Game"}

// kindsOf reads from objects alone: no caches are filled yet.
func kindsOf(t *testing.T, list workloadspread.AllowList, versioned string, documents ...string) *Kinds {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, appsv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	advanced := schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "StatefulSet"}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{advanced.GroupVersion(), gameKind.GroupVersion()})
	for _, kind := range []schema.GroupVersionKind{gameKind, advanced} {
		mapper.Add(kind, meta.RESTScopeNamespace)
		if scheme.Recognizes(kind) {
			continue
		}
		scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
		scheme.AddKnownTypeWithName(kind.GroupVersion().WithKind(kind.Kind+"List"), &unstructured.UnstructuredList{})
	}
	var objects []client.Object
	for _, document := range documents {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		u.SetNamespace("default")
		if u.GetName() == "" {
			u.SetName("web")
		}
		if u.GetUID() == "" {
			u.SetUID("web-uid")
		}
		typed, err := scheme.New(u.GroupVersionKind())
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := typed.(*unstructured.Unstructured); ok {
			objects = append(objects, u)
			continue
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, typed); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, typed.(client.Object))
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(mapper).WithObjects(objects...).Build()
	return &Kinds{live: c, scales: c.SubResource("scale"), mapper: mapper, scheme: scheme,
		listed: func() workloadspread.AllowList { return list },
		ready:  func() bool { return true }, versioned: workloadspread.ParseVersioned(versioned),
		followed: map[schema.GroupKind]cache.Informer{}}
}

// WS-016, WS-020 to WS-023, WS-085, WS-133, WS-192, WS-206: what is read of each kind of target.
func TestTargets(t *testing.T) {
	const sets = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-%[1]s, uid: uid-%[1]s, labels: {pod-template-hash: %[1]s}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: %[3]s, controller: true}]},
		spec: {replicas: 0, template: {metadata: {labels: {app: web, pod-template-hash: %[1]s}}, spec: {containers: [{name: c, image: "%[2]s"}]}}}}`
	replicaSet := func(hash, image, owner string) string { return fmt.Sprintf(sets, hash, image, owner) }
	leaving := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {finalizers: [f], deletionTimestamp: "2026-01-01T00:00:00Z"}, spec: {replicas: 3}}`
	game := workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size",
		DeletionCost: true}}}
	spread := func(version, kind, more string) string {
		return fmt.Sprintf(`{targetRef: {apiVersion: %s, kind: %s, name: web}%s}`, version, kind, more)
	}
	paths := func(list string) string { return `, targetFilter: {replicasPathList: [` + list + `]}` }
	type seen struct {
		Exists, Costs bool
		Desired       int32
		Controllers   []string
		Latest        string
		Start         int
		Reserved      []workloadspread.Ordinals
		DesiredError  string
		LatestError   string
	}
	web := []string{"web-uid"}
	for name, tt := range map[string]struct {
		spread    string
		list      workloadspread.AllowList
		versioned string
		documents []string
		want      seen
	}{
		"WS-022, WS-023 it does not exist": {spread: spread("apps/v1", "Deployment", "")},
		"WS-023 it is being deleted":       {spread: spread("apps/v1", "ReplicaSet", ""), documents: []string{leaving}},
		"a kind that is not served": {spread: spread("x/v1", "Thing", ""),
			list: workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: schema.GroupVersionKind{Group: "x",
				Kind: "Thing"}}}}},
		"a CloneSet": {spread: spread("apps.kruise.io/v1alpha1", "CloneSet", ""),
			documents: []string{`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, spec: {replicas: 4}}`},
			want:      seen{Exists: true, Costs: true, Desired: 4, Controllers: web}},
		"WS-021 a CloneSet without replicas": {spread: spread("apps.kruise.io/v1beta1", "CloneSet", ""),
			documents: []string{`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, spec: {}}`},
			want:      seen{Exists: true, Costs: true, Desired: 1, Controllers: web}},
		"WS-085 a CloneSet by version": {spread: spread("apps.kruise.io/v1beta1", "CloneSet", ""), versioned: "cloneset",
			documents: []string{`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {generation: 3}, status: {observedGeneration: 3, updateRevision: web-abc}}`},
			want:      seen{Exists: true, Costs: true, Desired: 1, Controllers: web, Latest: "abc"}},
		"WS-085 a CloneSet whose controller is behind": {spread: spread("apps.kruise.io/v1beta1", "CloneSet", ""), versioned: "cloneset",
			documents: []string{`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {generation: 4}, status: {observedGeneration: 3, updateRevision: web-abc}}`},
			want:      seen{Exists: true, Costs: true, Desired: 1, Controllers: web, LatestError: "last change"}},
		"a ReplicaSet": {spread: spread("apps/v1", "ReplicaSet", ""), versioned: "deployment",
			documents: []string{`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {labels: {pod-template-hash: abc}}, spec: {replicas: 2}}`},
			want:      seen{Exists: true, Costs: true, Desired: 2, Controllers: web, Latest: "abc"}},
		"WS-020 a Deployment with its ReplicaSets, empty ones too": {spread: spread("apps/v1", "Deployment", ""), versioned: "deployment",
			documents: []string{
				`{apiVersion: apps/v1, kind: Deployment, spec: {replicas: 6, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:2"}]}}}}`,
				replicaSet("one", "i:1", "web-uid"), replicaSet("two", "i:2", "web-uid"), replicaSet("other", "i:2", "somebody")},
			want: seen{Exists: true, Costs: true, Desired: 6, Controllers: []string{"uid-one", "uid-two"}, Latest: "two"}},
		"WS-021 a Deployment without replicas": {spread: spread("apps/v1", "Deployment", ""),
			documents: []string{`{apiVersion: apps/v1, kind: Deployment, spec: {}}`},
			want:      seen{Exists: true, Costs: true, Desired: 1}},
		"a StatefulSet": {spread: spread("apps/v1", "StatefulSet", ""),
			documents: []string{`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3, ordinals: {start: 7}}}`},
			want:      seen{Exists: true, Desired: 3, Controllers: web, Start: 7}},
		"an Advanced StatefulSet, not the native one of its name (WS-191)": {spread: spread("apps.kruise.io/v1alpha1", "StatefulSet", ""),
			documents: []string{
				`{apiVersion: apps/v1, kind: StatefulSet, spec: {replicas: 3}}`, `{apiVersion: apps.kruise.io/v1beta1, kind: StatefulSet, metadata: {uid: other-uid}, spec: {replicas: 5, reserveOrdinals: [1, "3-4", 2]}}`},
			want: seen{Exists: true, Desired: 5, Controllers: []string{"other-uid"}, Reserved: []workloadspread.Ordinals{{First: 1, Last: 4}}}},
		"WS-021, WS-192 a Job without parallelism": {spread: spread("batch/v1", "Job", ""),
			documents: []string{`{apiVersion: batch/v1, kind: Job, spec: {selector: {matchLabels: {a: b}}}}`},
			want:      seen{Exists: true, Desired: 1, Controllers: web}},
		"a Job": {spread: spread("batch/v1", "Job", ""),
			documents: []string{`{apiVersion: batch/v1, kind: Job, spec: {parallelism: 5, completions: 9}}`},
			want:      seen{Exists: true, Desired: 5, Controllers: web}},
		"WS-016 a listed kind by the path of the list": {spread: spread("game.example.com/v1", "Game", ""), list: game,
			documents: []string{`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 8, parts: [{count: 2}, {count: 3}]}}`},
			want:      seen{Exists: true, Costs: true, Desired: 8, Controllers: web}},
		"WS-206 no costs are written where the list does not ask for them": {spread: spread("game.example.com/v1", "Game", ""),
			list:      workloadspread.AllowList{Workloads: []workloadspread.CustomKind{{GroupVersionKind: gameKind, ReplicasPath: "spec.size"}}},
			documents: []string{`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 8}}`}, want: seen{Exists: true, Desired: 8,
				Controllers: web}},
		"WS-016 the paths of the WorkloadSpread win": {spread: spread("game.example.com/v1", "Game",
			paths("spec.parts.0.count, spec.parts.1.count")), list: game,
			documents: []string{`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 8, parts: [{count: 2}, {count: 3}]}}`},
			want:      seen{Exists: true, Costs: true, Desired: 5, Controllers: web}},
		"WS-016 also of kinds that need none": {spread: spread("apps.kruise.io/v1beta1", "CloneSet", paths("spec.minReadySeconds")),
			documents: []string{`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, spec: {replicas: 4, minReadySeconds: 9}}`},
			want:      seen{Exists: true, Costs: true, Desired: 9, Controllers: web}},
		"WS-133 a path that is not there": {spread: spread("game.example.com/v1", "Game", paths("spec.none")), list: game,
			documents: []string{`{apiVersion: game.example.com/v1, kind: Game, spec: {size: 8}}`},
			want:      seen{Exists: true, Costs: true, Controllers: web, DesiredError: `there is no "none"`}},
	} {
		t.Run(name, func(t *testing.T) {
			target, err := kindsOf(t, tt.list, tt.versioned, tt.documents...).Target(t.Context(), spreadFrom(t, tt.spread), false)
			if err != nil {
				t.Fatal(err)
			}
			got := seen{Exists: target.Exists, Costs: target.Costs, Desired: target.Desired, Latest: target.Latest, Start: target.Start,
				Reserved: target.Reserved}
			for _, uid := range target.Controllers {
				got.Controllers = append(got.Controllers, string(uid))
			}
			for _, e := range []struct {
				err  error
				want *string
				got  *string
			}{{target.DesiredError, &tt.want.DesiredError, &got.DesiredError},
				{target.LatestError, &tt.want.LatestError, &got.LatestError}} {
				if e.err != nil {
					if *e.got = e.err.Error(); *e.want != "" && strings.Contains(*e.got, *e.want) {
						*e.got = *e.want
					}
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if custom := target.GroupKind == gameKind.GroupKind(); (target.Fallback != nil) != (custom && target.Exists) {
				t.Error("only custom kinds have pods of a selector")
			}
		})
	}
}

func spreadFrom(t *testing.T, spec string) *appsv1beta1.WorkloadSpread {
	t.Helper()
	s := &appsv1beta1.WorkloadSpread{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shop"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &s.Spec); err != nil {
		t.Fatal(err)
	}
	return s
}

// WS-085, WS-205: of ReplicaSets whose templates are the same to our types, which may not know all fields,
// the latest is the one of the Deployment's revision, else the oldest, whatever order they are listed in.
func TestLatestOfEqualTemplates(t *testing.T) {
	set := func(hash, revision string, seconds int) appsv1.ReplicaSet {
		return appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-" + hash, CreationTimestamp: workloadspreadtest.At(seconds),
			Labels:      map[string]string{pub.PodTemplateHash: hash},
			Annotations: map[string]string{slim.TemplateSum: "s", "deployment.kubernetes.io/revision": revision}}}
	}
	for name, tt := range map[string]struct {
		revision string
		sets     []appsv1.ReplicaSet
		want     string
	}{
		"by the revision":    {"2", []appsv1.ReplicaSet{set("old", "1", -60), set("new", "2", -10)}, "new"},
		"a revision of none": {"3", []appsv1.ReplicaSet{set("new", "2", -10), set("old", "1", -60)}, "old"},
		"of the same second": {"3", []appsv1.ReplicaSet{set("b", "2", -10), set("a", "1", -10)}, "a"},
		"in the other order": {"3", []appsv1.ReplicaSet{set("a", "1", -10), set("b", "2", -10)}, "a"},
		"no revision at all": {"", []appsv1.ReplicaSet{set("new", "", -10), set("old", "", -60)}, "old"},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{slim.TemplateSum: "s",
				"deployment.kubernetes.io/revision": tt.revision}}}
			got, err := latestOf(deployment, tt.sets)
			if got != tt.want {
				t.Errorf("latestOf(deployment, tt.sets): got %q, want %q", got, tt.want)
			}
			if err != nil {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
}

// WS-052, WS-053: the chain of owners.
func TestParent(t *testing.T) {
	kinds := kindsOf(t, workloadspread.AllowList{}, "",
		`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, ownerReferences: [{apiVersion: x/v1, kind: Other, name: o, uid: o}, {apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]}}`,
		`{apiVersion: batch/v1, kind: Job, metadata: {name: alone}}`)
	parent, ok, err := kinds.Parent(t.Context(), "default", workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "web-1"})
	if err != nil {
		t.Errorf("unexpected error: %v\n%v\n%t", err, parent, ok)
	} else if !ok {
		t.Errorf("ok: got false, want true\n%v\n%v", parent, err)
	} else if parent != (workloadspread.Reference{GroupKind: workloadkind.Deployment, Name: "web"}) {
		t.Errorf("parent: got %v, want %v\n%t\n%v", parent, workloadspread.Reference{GroupKind: workloadkind.Deployment, Name: "web"}, ok,
			err)
	}
	if _, ok, err := kinds.Parent(t.Context(), "default",
		workloadspread.Reference{GroupKind: workloadkind.Job, Name: "alone"}); err != nil {
		t.Errorf("unexpected error: %v\n%t", err, ok)
	} else if ok {
		t.Errorf("ok: got true, want false\n%v", err)
	}
	if _, _, err := kinds.Parent(t.Context(), "default",
		workloadspread.Reference{GroupKind: workloadkind.ReplicaSet, Name: "none"}); !apierrors.IsNotFound(err) {
		t.Errorf("error: got %v, want one of kind NotFound", err)
	}
}

// WS-026, WS-027, WS-051: what users list counts as soon as they list it; what cannot be read changes
// nothing.
func TestListed(t *testing.T) {
	l := &Listed{log: logr.Discard()}
	kinds := &Kinds{listed: l.Kinds, ready: l.Ready}
	game := gameKind.GroupKind()
	if kinds.Known(game) {
		t.Error("nothing is listed yet: kinds.Known(game): got true, want false")
	}
	if !kinds.Known(workloadkind.Job) {
		t.Error("nothing is listed yet: kinds.Known(workloadkind.Job): got false, want true")
	}
	l.read(&corev1.ConfigMap{Data: map[string]string{workloadspread.AllowListKey: `{"workloads":[{"Group":"game.example.com","Kind":"Game"}]}`}})
	if !kinds.Known(game) {
		t.Error("it is listed: got it unknown")
	}
	if err := l.Err(); err != nil {
		t.Errorf("it is listed: %v", err)
	}
	l.read(&corev1.ConfigMap{Data: map[string]string{workloadspread.AllowListKey: `{`}})
	if !kinds.Known(game) {
		t.Error("what was read before stays, and the error is told: kinds.Known(game): got false, want true")
	}
	if got := l.Err(); got == nil {
		t.Error("what was read before stays, and the error is told: l.Err(): got nil, want an error")
	}
	l.read(&corev1.ConfigMap{})
	if kinds.Known(game) {
		t.Error("nothing is listed any more: got it known")
	}
	if err := l.Err(); err != nil {
		t.Errorf("nothing is listed any more: %v", err)
	}
}

// OPS-013: kinds are listed under their key of ConfigMap kruise-configuration, in JSON, whatever stands under
// other keys; an absent key lists nothing. TestTheConfigurationOfTheInstallation is about the key of
// SidecarSets; that of PersistentPodStates means nothing to anybody yet. That the ConfigMap is the one in the
// namespace of the manager is shown by TestWorkloadSpreadOfAListedKind on a real API server, too.
func TestTheKeyOfListedKinds(t *testing.T) {
	if name := workloadspread.ConfigMapName; name != "kruise-configuration" {
		t.Errorf("name of the ConfigMap: got %s, want kruise-configuration", name)
	}
	if key := workloadspread.AllowListKey; key != "WorkloadSpread_Watch_Custom_Workload_WhiteList" {
		t.Errorf("key of the list: got %s, want WorkloadSpread_Watch_Custom_Workload_WhiteList", key)
	}
	const text = `{"workloads":[{"Group":"game.example.com","Kind":"Game"}]}`
	for name, test := range map[string]struct {
		data map[string]string
		want bool
	}{
		"its key": {map[string]string{workloadspread.AllowListKey: text}, true},
		"its key among others": {map[string]string{workloadspread.AllowListKey: text, "PPS_Watch_Custom_Workload_WhiteList": "{",
			"SidecarSet_PatchPodMetadata_WhiteList": "{"}, true},
		"other keys": {map[string]string{"PPS_Watch_Custom_Workload_WhiteList": text,
			"SidecarSet_PatchPodMetadata_WhiteList": text}, false},
		"no keys": {nil, false},
	} {
		l := &Listed{log: logr.Discard()}
		l.read(&corev1.ConfigMap{Data: test.data})
		if got := (&Kinds{listed: l.Kinds, ready: l.Ready}).Known(gameKind.GroupKind()); got != test.want {
			t.Errorf("%s: the kind is known: got %t, want %t", name, got, test.want)
		}
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
