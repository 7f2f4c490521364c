package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// reserve sets the reserved ordinals: numbers, and texts for ranges.
func reserve(entries ...any) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.ReserveOrdinals = nil
		for _, entry := range entries {
			if text, ok := entry.(string); ok {
				set.Spec.ReserveOrdinals = append(set.Spec.ReserveOrdinals, intstr.FromString(text))
			} else {
				set.Spec.ReserveOrdinals = append(set.Spec.ReserveOrdinals, intstr.FromInt(entry.(int)))
			}
		}
	}
}

func start(ordinal int32) func(*appsv1beta1.StatefulSet) {
	return func(set *appsv1beta1.StatefulSet) {
		set.Spec.Ordinals = &appsv1beta1.StatefulSetOrdinals{Start: ordinal}
	}
}

// uids are those of the pods, by ordinal.
func (s *simulated) uids() map[int]types.UID {
	uids := map[int]types.UID{}
	for _, pod := range s.AllPods() {
		uids[ordinal(pod.Name)] = pod.UID
	}
	return uids
}

// TestOtherPodsStayWhenOrdinalsAreReserved shows what becomes of pods as ordinals are reserved and given
// back. All others are the same as before. ASTS-092: what is reserved below the start or above the last slot
// has no effect yet, and stays. ASTS-093: a pod that is reserved goes, and comes elsewhere unless the set
// becomes smaller.
func TestOtherPodsStayWhenOrdinalsAreReserved(t *testing.T) {
	type step struct {
		changes []func(*appsv1beta1.StatefulSet)
		want    string
	}
	change := func(changes ...func(*appsv1beta1.StatefulSet)) []func(*appsv1beta1.StatefulSet) { return changes }
	for name, steps := range map[string][]step{
		"ASTS-093": {{change(scaled(3)), "0 1 2"}, {change(reserve(1)), "0 2 3"}, {change(reserve()), "0 1 2"},
			{change(reserve(1), scaled(2)), "0 2"}, {change(reserve(1, 0)), "2 3"}, {change(reserve(0)), "1 2"},
			{change(reserve("1-2", 0), scaled(0)), ""}},
		"ASTS-092": {{change(reserve("0-1", "4-9", "7-12", 20, 8), start(2), scaled(2)), "2 3"}, {change(scaled(4)), "2 3 13 14"},
			{change(start(0)), "2 3 13 14"}, {change(scaled(11)), "2 3 13 14 15 16 17 18 19 21 22"}, {change(scaled(1)), "2"}},
	} {
		for _, policy := range []func(*appsv1beta1.StatefulSet){inOrder, inParallel} {
			t.Run(name, func(t *testing.T) {
				s := simulate(1, makeSet(0, policy), statefulset.Features{StartOrdinal: true})
				for i, step := range steps {
					before := s.uids()
					for _, change := range step.changes {
						s.Edit(change)
					}
					reserved := s.set().Spec.ReserveOrdinals
					s.ActFor(5 * time.Minute)
					after := s.uids()
					got := strings.Trim(fmt.Sprint(slices.Sorted(maps.Keys(after))), "[]")
					if got != step.want {
						t.Fatalf("step %d: pods %s, not %s", i, got, step.want)
					}
					for ordinal, uid := range after {
						if was := before[ordinal]; was != "" && was != uid {
							t.Errorf("step %d: pod %d is another one", i, ordinal)
						}
					}
					if diff := cmp.Diff(reserved, s.set().Spec.ReserveOrdinals); diff != "" {
						t.Errorf("step %d: reserved ordinals (-want +got):\n%s", i, diff)
					}
				}
			})
		}
	}
}
