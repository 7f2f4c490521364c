package cloneset

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/engine/podplan"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

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
	if len(names) != 2 || names[0] != "web-ccccc" || names[1] == "web-aaaaa" {
		t.Error(names)
	}
}

// TestMessagesKeepStill: what is read or met in any order is told in one, and never without end (CS-223,
// CS-355).
func TestMessagesKeepStill(t *testing.T) {
	if got := Make(Snapshot{Set: clonesettest.Set(0), Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Orphans: []string{"b",
		"a"}}).Orphans; !slices.Equal(got, []string{"a", "b"}) {
		t.Error(got)
	}
	if n := len(Make(Snapshot{Set: clonesettest.Set(math.MaxInt32), Snapshot: podplan.Snapshot{Now: clonesettest.Now},
		Random: rand.IntN}).Create); n != maxCreate {
		t.Errorf("%d pods in one plan", n)
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
	if n := len(Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: rand.IntN}).Create); n == 0 || n > 500 {
		t.Errorf("%d pods in one plan", n)
	}
}

// TestASelectorThatLosesItsPods: a selector that asks for labels which controllers set and change made pods
// without end, which were given up as soon as they were there (CS-021 (part)).
func TestASelectorThatLosesItsPods(t *testing.T) {
	for _, key := range []string{pub.LifecycleState, pub.CloneSetInstanceID, pub.ControllerRevisionHash} {
		set := clonesettest.Set(2)
		set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}}
		plan := Make(Snapshot{Set: set, Snapshot: podplan.Snapshot{Now: clonesettest.Now}, Random: rand.IntN})
		if len(plan.Create) > 0 || plan.UpdateError == "" {
			t.Errorf("%s: %s", key, plan)
		}
	}
}
