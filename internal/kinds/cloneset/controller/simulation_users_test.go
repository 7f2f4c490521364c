package controller

import (
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/api/template"
	"github.com/afloat-project/afloat/internal/kinds/cloneset/clonesettest"
)

// changeMidRollout does what few users do in the middle of a rollout: they change how it goes.
func (r *rolloutRun) changeMidRollout() {
	policy := r.set().Spec.UpdateStrategy.RollingUpdate.PodUpdatePolicy
	only := policy == appsv1beta1.InPlaceOnlyCloneSetPodUpdatePolicy
	seconds, n := int32(r.Rand.IntN(6)), r.Rand.IntN(3)
	switch r.Rand.IntN(8) {
	case 0:
		r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.MinReadySeconds = seconds })
	case 1:
		surge, none := !only && r.Chance(0.5), r.Chance(0.5)
		// Pods above the replicas go again when there may be none any more.
		before := r.set().Spec.UpdateStrategy.RollingUpdate.MaxSurge
		r.scaled = r.scaled || surge || before != nil && before.String() != "0"
		r.Edit(clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
			s.MaxUnavailable, s.MaxSurge = new(intstr.FromInt32(int32(1+n))), nil
			if surge {
				s.MaxSurge = new(intstr.FromInt32(1))
			}
			if surge && none {
				s.MaxUnavailable = new(intstr.FromInt32(0))
			}
		}))
	case 2:
		r.Edit(func(set *appsv1beta1.CloneSet) {
			set.Spec.ScaleStrategy.EnablePVCReuse = !set.Spec.ScaleStrategy.EnablePVCReuse
		})
	case 3:
		r.inPlaceable, r.reclaimed = false, true // the gate RecreatePodWhenChangeVCTInCloneSetGate is on
		templates := []template.VolumeClaimTemplates{nil, {clonesettest.ClaimTemplate("data", "1Gi")},
			{clonesettest.ClaimTemplate("data", "2Gi"), clonesettest.ClaimTemplate("more", "1Gi")}}[n]
		r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.VolumeClaimTemplates = templates })
	case 4:
		r.redirected = true
		kind := appsv1beta1.OnDeleteCloneSetUpdateStrategyType
		if r.set().Spec.UpdateStrategy.Type == kind {
			kind = appsv1beta1.RollingUpdateCloneSetUpdateStrategyType
		}
		r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.UpdateStrategy.Type = kind })
	case 5:
		if !only {
			r.inPlaceable, r.redirected = false, true
			policy = []appsv1beta1.CloneSetPodUpdatePolicy{appsv1beta1.ReCreateCloneSetPodUpdatePolicy,
				appsv1beta1.InPlaceIfPossibleCloneSetPodUpdatePolicy}[n%2]
			r.Edit(clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) { s.PodUpdatePolicy = policy }))
		}
	case 6: // nobody is to be deleted any more
		for _, pod := range r.active() {
			if _, ok := pod.Labels[pub.SpecifiedDelete]; ok {
				r.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), pub.SpecifiedDelete) })
			}
		}
		r.Edit(func(set *appsv1beta1.CloneSet) { set.Spec.ScaleStrategy.PodsToDelete = []string{"stranger"} })
	case 7:
		r.Edit(clonesettest.Rolling(func(s *appsv1beta1.RollingUpdateCloneSetStrategy) {
			s.InPlaceUpdateStrategy = &pub.InPlaceUpdateStrategy{GracePeriodSeconds: seconds}
		}))
	}
}
