package cloneset

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// counting returns chance as a plan takes it: 0, 0, 0, 0, 0, then 1, 1, 1, 1, 1 and so on, so that IDs are
// bbbbb, ccccc, ddddd.
func counting() func(int) int {
	n := -1
	return func(below int) int { n++; return n / idLength % below }
}

func planFor(set *appsv1beta1.CloneSet, change ...func(*Snapshot)) *Plan {
	set.UID = "set-uid"
	snapshot := Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: counting()}
	for _, c := range change {
		c(&snapshot)
	}
	return Make(snapshot)
}

// asJSON returns a document as the API server receives it.
func asJSON(t *testing.T, doc any) string {
	t.Helper()
	encoded, err := json.MarshalIndent(doc, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(encoded)
}

func sameDocument(t *testing.T, want string, got any) {
	t.Helper()
	var doc any
	decoder := json.NewDecoder(strings.NewReader(want))
	decoder.UseNumber()
	if err := decoder.Decode(&doc); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(asJSON(t, doc), asJSON(t, got)); diff != "" {
		t.Errorf("the pod (-want +got):\n%s", diff)
	}
}

func claimTemplateOf(document string) template.VolumeClaimTemplate {
	var claim template.VolumeClaimTemplate
	if err := json.Unmarshal([]byte(document), &claim); err != nil {
		panic(err)
	}
	return claim
}

// CS-040 (part), CS-041, CS-042, CS-043 (part), CS-045, CS-050 (part), IPU-131 (part): the documents sent to
// make a pod and its claims, whole. Fields that our types do not know reach both.
func TestPodAndClaimDocuments(t *testing.T) {
	set := clonesettest.Set(1)
	clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web","tier":"x"},"annotations":{"a":"b"},"finalizers":["x/f"]},
		"spec":{"future":{"big":12345678901234567890},"readinessGates":[{"conditionType":"Own"}],"volumes":[{"name":"data","emptyDir":{}},{"name":"own","emptyDir":{}}],
		"containers":[{"name":"nginx","image":"nginx:1","futureField":true}]}}`)
	set.Spec.VolumeClaimTemplates = template.VolumeClaimTemplates{
		claimTemplateOf(`{"metadata":{"name":"data","labels":{"l":"1","app":"other"},"annotations":{"c":"d"}},"spec":{"accessModes":["ReadWriteOnce"],"futureField":1},"status":{"phase":"Pending"}}`),
		claimTemplateOf(`{"metadata":{"name":"logs"},"spec":{"accessModes":["ReadWriteOnce"]}}`)}
	plan := planFor(set)
	if len(plan.Create) != 1 {
		t.Fatalf("plan:\n%s", plan)
	}
	creation := plan.Create[0]
	name := plan.UpdateRevision
	hash := strings.TrimPrefix(name, "web-")
	const owner = `"ownerReferences":[{"apiVersion":"apps.kruise.io/v1beta1","kind":"CloneSet","name":"web","uid":"set-uid","controller":true,"blockOwnerDeletion":true}]`
	sameDocument(t, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-bbbbb","generateName":"web-","namespace":"default",
		"labels":{"app":"web","tier":"x","apps.kruise.io/cloneset-instance-id":"bbbbb","controller-revision-hash":"`+name+`","pod-template-hash":"`+hash+`","lifecycle.apps.kruise.io/state":"PreparingNormal"},
		"annotations":{"a":"b","lifecycle.apps.kruise.io/timestamp":"2026-01-01T12:00:00Z"},"finalizers":["x/f"],`+owner+`},
		"spec":{"future":{"big":12345678901234567890},"readinessGates":[{"conditionType":"Own"},{"conditionType":"InPlaceUpdateReady"},{"conditionType":"KruisePodReady"}],
		"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"data-web-bbbbb","readOnly":false}},{"name":"logs","persistentVolumeClaim":{"claimName":"logs-web-bbbbb","readOnly":false}},{"name":"own","emptyDir":{}}],
		"containers":[{"name":"nginx","image":"nginx:1","futureField":true,"resources":{}}]}}`, creation.Pod)
	if len(creation.Claims) != 2 {
		t.Fatalf("%d claims", len(creation.Claims))
	}
	sameDocument(t, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"data-web-bbbbb","namespace":"default",
		"labels":{"l":"1","app":"web","apps.kruise.io/cloneset-instance-id":"bbbbb"},"annotations":{"c":"d"},`+owner+`},"spec":{"accessModes":["ReadWriteOnce"],"futureField":1}}`, creation.Claims[0])
	sameDocument(t, `{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"logs-web-bbbbb","namespace":"default",
		"labels":{"app":"web","apps.kruise.io/cloneset-instance-id":"bbbbb"},`+owner+`},"spec":{"accessModes":["ReadWriteOnce"]}}`, creation.Claims[1])
}

// CS-044, IPU-131 (part): both gates are added whatever the policy, once, after the template's own.
func TestGatesAreAddedOnce(t *testing.T) {
	onDelete := func(set *appsv1beta1.CloneSet) {
		set.Spec.UpdateStrategy = appsv1beta1.CloneSetUpdateStrategy{Type: appsv1beta1.OnDeleteCloneSetUpdateStrategyType}
	}
	for name, strategy := range map[string]func(*appsv1beta1.CloneSet){"in place if possible": clonesettest.Policy(appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy),
		"in place only": clonesettest.Policy(appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy),
		"recreate":      clonesettest.Policy(appsv1beta1.ReCreateCloneSetPodUpdatePolicy), "on delete": onDelete} {
		t.Run(name, func(t *testing.T) {
			for gates, want := range map[string]string{
				`[]`:                        `[{"conditionType":"InPlaceUpdateReady"},{"conditionType":"KruisePodReady"}]`,
				`[{"conditionType":"Own"}]`: `[{"conditionType":"Own"},{"conditionType":"InPlaceUpdateReady"},{"conditionType":"KruisePodReady"}]`,
				`[{"conditionType":"InPlaceUpdateReady"},{"conditionType":"Own"}]`: `[{"conditionType":"InPlaceUpdateReady"},{"conditionType":"Own"},{"conditionType":"KruisePodReady"}]`,
				`[{"conditionType":"KruisePodReady"}]`:                             `[{"conditionType":"KruisePodReady"},{"conditionType":"InPlaceUpdateReady"}]`,
			} {
				set := clonesettest.Set(1, strategy)
				clonesettest.SetTemplate(set, `{"metadata":{"labels":{"app":"web"}},"spec":{"readinessGates":`+gates+`,"containers":[]}}`)
				sameDocument(t, want, planFor(set).Create[0].Pod["spec"].(map[string]any)["readinessGates"])
			}
		})
	}
}

// CS-050, CS-052: the full name of the revision labels pods, or the short hash by the gate or where a label
// cannot hold the name.
func TestPodsAreLabelledWithTheirRevision(t *testing.T) {
	tests := map[string]struct {
		name  string
		gate  bool
		short bool
	}{
		"full":                                  {"web", false, false},
		"short by gate":                         {"web", true, true},
		"a name that no label value could hold": {strings.Repeat("a", 60), false, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(1)
			set.Name = tt.name
			plan := planFor(set, func(s *Snapshot) { s.Features.ShortHash = tt.gate })
			hash := strings.TrimPrefix(plan.UpdateRevision, tt.name+"-")
			labels := plan.Create[0].Pod["metadata"].(map[string]any)["labels"].(map[string]any)
			want := map[bool]string{true: hash, false: plan.UpdateRevision}[tt.short]
			if labels[pub.ControllerRevisionHash] != want {
				t.Errorf("label controller revision hash: got %v, want %q; labels %v, want %s and %s",
					labels[pub.ControllerRevisionHash], want,
					labels, want, hash)
			}
			if labels[pub.PodTemplateHash] != hash {
				t.Errorf("label pod template hash: got %v, want %q; labels %v, want %s and %s",
					labels[pub.PodTemplateHash], hash, labels, want,
					hash)
			}
		})
	}
}

func ownedClaim(name, id string, options ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{}
	claim.Name, claim.Namespace, claim.UID = name, "default", "claim-uid"
	if id != "" {
		claim.Labels = map[string]string{pub.CloneSetInstanceID: id}
	}
	for _, option := range options {
		option(claim)
	}
	return claim
}

// CS-040, CS-046, CS-060, CS-063, CS-065, CS-335: IDs, and which claims are made with them.
func TestInstanceIDs(t *testing.T) {
	going := func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{Time: clonesettest.Now} }
	pod := func(id string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: phase}}
		p.Name, p.Namespace, p.UID = "web-"+id, "default", "pod-uid"
		p.Labels = map[string]string{"app": "web", pub.CloneSetInstanceID: id}
		return p
	}
	tests := map[string]struct {
		reuse  bool
		pods   []*corev1.Pod
		claims []*corev1.PersistentVolumeClaim
		want   map[string]int // name of the pod: claims made for it
	}{
		"random ones": {true, nil, nil, map[string]int{"web-bbbbb": 1, "web-ccccc": 1}},
		"CS-040 not that of an active pod": {true, []*corev1.Pod{pod("bbbbb", corev1.PodRunning)}, nil,
			map[string]int{"web-ccccc": 1}},
		"CS-335 nor that of a failed pod": {true, []*corev1.Pod{pod("bbbbb", corev1.PodFailed)},
			[]*corev1.PersistentVolumeClaim{ownedClaim("data-web-bbbbb", "bbbbb")}, map[string]int{"web-ccccc": 1, "web-ddddd": 1}},
		"CS-060, CS-046 live claims first": {true, nil, []*corev1.PersistentVolumeClaim{ownedClaim("data-web-zzzzz",
			"zzzzz")}, map[string]int{"web-zzzzz": 0, "web-bbbbb": 1}},
		"CS-046 the claims that lack alone": {true, nil, []*corev1.PersistentVolumeClaim{ownedClaim("logs-web-zzzzz",
			"zzzzz")}, map[string]int{"web-zzzzz": 1, "web-bbbbb": 1}},
		"CS-063 not those that are going": {true, nil, []*corev1.PersistentVolumeClaim{ownedClaim("data-web-zzzzz", "zzzzz",
			going)}, map[string]int{"web-bbbbb": 1, "web-ccccc": 1}},
		"CS-137 not those without an ID": {true, nil, []*corev1.PersistentVolumeClaim{ownedClaim("data-web-zzzzz", "")},
			map[string]int{"web-bbbbb": 1, "web-ccccc": 1}},
		"CS-065 without reuse always fresh": {false, nil, []*corev1.PersistentVolumeClaim{ownedClaim("data-web-zzzzz",
			"zzzzz")}, map[string]int{"web-bbbbb": 1, "web-ccccc": 1}},
		"CS-040 without reuse, not that of a live claim": {false, nil, []*corev1.PersistentVolumeClaim{ownedClaim("data-web-bbbbb",
			"bbbbb")}, map[string]int{"web-ccccc": 1, "web-ddddd": 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set := clonesettest.Set(2, clonesettest.Claims("1Gi"))
			set.Spec.ScaleStrategy.EnablePVCReuse = tt.reuse
			plan := planFor(set, func(s *Snapshot) { s.Pods, s.Claims = tt.pods, tt.claims })
			got := map[string]int{}
			for _, creation := range plan.Create {
				got[creation.Name] = len(creation.Claims)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, plan)
			}
		})
	}
}

// TestManyReplicasOfMuch: a wrong number of replicas, each with hundreds of claims, took gigabytes for the
// documents of one plan.
func TestManyReplicasOfMuch(t *testing.T) {
	set, claims := clonesettest.Set(math.MaxInt32), []string{}
	for i := range 300 {
		claims = append(claims, fmt.Sprintf(`{"metadata":{"name":"c%d"},"spec":{"accessModes":["ReadWriteOnce"]}}`, i))
	}
	if err := set.Spec.VolumeClaimTemplates.UnmarshalJSON([]byte("[" + strings.Join(claims, ",") + "]")); err != nil {
		t.Fatal(err)
	}
	n := len(Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: rand.IntN}).Create)
	if n == 0 {
		t.Errorf("n: got %d, want another value", n)
	}
	if n > 500 {
		t.Errorf("n: got %d, want at most 500", n)
	}
}
