package cloneset

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/cputime"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// A node is lost whose Ready is Unknown, or that does not exist; not one that says itself that it is not
// ready (CS-272).
func TestANodeIsLostWhoseReadyIsUnknown(t *testing.T) {
	s := Snapshot{}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown} {
		s.RecordNode(string(status), &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionUnknown}, {Type: corev1.NodeReady, Status: status}}}}, true)
	}
	s.RecordNode("gone", &corev1.Node{}, false)
	if !maps.Equal(s.LostNodes, map[string]bool{"True": false, "False": false, "Unknown": true, "gone": true}) {
		t.Errorf("lost nodes: got %v, want %v", s.LostNodes, map[string]bool{"True": false, "False": false,
			"Unknown": true, "gone": true})
	}
}

// CS-338 (part): claims are not compared with every template: a set of one MiB has thousands of these, and as
// many claims as its pods want, or as their owner makes besides.
func TestClaimsAreNotComparedWithEveryTemplate(t *testing.T) {
	const many = 10_000
	s := Snapshot{Set: clonesettest.Set(0, clonesettest.Annotated(pub.ResizeClaims, "true"))}
	for i := range many {
		claim := template.VolumeClaimTemplate{}
		claim.Name = fmt.Sprint("data", i)
		claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}
		s.Set.Spec.VolumeClaimTemplates = append(s.Set.Spec.VolumeClaimTemplates, claim)
		s.Claims = append(s.Claims, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("data%d-%s-abcde", i,
			s.Set.Name), Labels: map[string]string{pub.CloneSetInstanceID: "abcde"}},
			Status: corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}})
	}
	p := &planner{in: s, set: s.Set, out: &Plan{Set: s.Set}}
	p.core = podplan.New(workloadOf(s.Set, s.Features), &p.in.Snapshot, &p.out.Plan)
	spent := cputime.Start(t)
	p.growClaims()
	if n := len(p.out.ClaimGrowth); n != many {
		t.Errorf("claims that grow: got %d, want %d", n, many)
	}
	if took := spent(); took > 2*time.Second {
		t.Errorf("growing %d claims took %v, want 2s at most", many, took)
	}
}

// The API server rejects the growth of a claim without a volume, such as one whose pod has no node yet. It is not asked
// for, and begins when the volume is there (CS-338 (part)).
func TestClaimsGrowWhenTheyHaveAVolume(t *testing.T) {
	set := clonesettest.Set(1, clonesettest.Claims("2Gi"), clonesettest.Annotated(pub.ResizeClaims, "true"))
	one := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "data-web-abcde", Labels: map[string]string{pub.CloneSetInstanceID: "abcde"}},
		Spec:       corev1.PersistentVolumeClaimSpec{Resources: corev1.VolumeResourceRequirements{Requests: one}},
	}
	for _, bound := range []bool{false, true} {
		if bound {
			claim.Status.Capacity = one
		}
		plan := Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: rand.New(rand.NewPCG(1, 1)).IntN,
			Claims: []*corev1.PersistentVolumeClaim{claim}})
		const reason = "1 claim smaller than its template and without a volume; growth begins when the volume is there"
		if grows, told := len(plan.ClaimGrowth) == 1, strings.Contains(plan.String(), reason); grows != bound || told == bound {
			t.Errorf("claim with a volume %t: got growth %t and the reason %t\n%s", bound, grows, told, plan)
		}
	}
}

// TestClaimsThatGo: an ID one of whose claims is on its way out is not used again, or its pod would wait for
// that claim for ever (CS-063).
func TestClaimsThatGo(t *testing.T) {
	claim := func(name, id string, going bool) *corev1.PersistentVolumeClaim {
		c := &corev1.PersistentVolumeClaim{}
		c.Name, c.Labels = name+"-web-"+id, map[string]string{pub.CloneSetInstanceID: id}
		if going {
			c.DeletionTimestamp = &metav1.Time{Time: clonesettest.Now}
		}
		return c
	}
	plan := Make(Snapshot{Set: clonesettest.Set(2), Snapshot: podplan.Snapshot{Now: clonesettest.Now},
		Random: rand.New(rand.NewPCG(1, 1)).IntN,
		Claims: []*corev1.PersistentVolumeClaim{claim("data", "aaaaa", false), claim("logs", "aaaaa", true),
			claim("data", "ccccc", false)}})
	var names []string
	for _, creation := range plan.Create {
		names = append(names, creation.Name)
	}
	if len(names) != 2 {
		t.Errorf("number of names: got %d, want 2\n%q", len(names), names)
	} else if names[0] != "web-ccccc" {
		t.Errorf("first name: got %q, want %q\n%q", names[0], "web-ccccc", names)
	} else if names[1] == "web-aaaaa" {
		t.Errorf("second name: got %q, want another value\n%q", names[1], names)
	}
}
