package controller

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/simulation"
)

// user does something that users do, and in worlds that are not calm also what nobody wants.
func (r *budgetRun) user(pods []*corev1.Pod) {
	var pod *corev1.Pod
	if len(pods) > 0 {
		pod = pods[r.Rand.IntN(len(pods))]
	}
	kinds := 8
	if !r.calm {
		kinds = 19
	}
	switch n := r.Rand.IntN(kinds); {
	case n == 0:
		image := fmt.Sprint("app:", 1+r.Rand.IntN(3))
		r.Change(setKey, func(o client.Object) {
			setImage(image)(o.(*appsv1beta1.CloneSet))
			o.SetGeneration(o.GetGeneration() + 1)
		})
	case n == 1:
		r.scale(setKey, int32(r.Rand.IntN(8)))
	case n == 2 && r.Get(deploymentKey) != nil:
		r.Change(deploymentKey, func(o client.Object) { o.SetAnnotations(map[string]string{"version": fmt.Sprint(1 + r.Rand.IntN(3))}) })
	case n == 3:
		for _, key := range []simulation.Key{deploymentKey, {Kind: "ReplicaSet", Name: "rs"}} {
			if r.Get(key) != nil {
				r.scale(key, int32(r.Rand.IntN(6)))
			}
		}
	case pod == nil:
	case n == 4:
		_ = r.remove(pod.Name)
	case n == 5:
		for range 1 + r.Rand.IntN(3) {
			r.draining = append(r.draining, pods[r.Rand.IntN(len(pods))].UID)
		}
	case n == 6 && pod.Labels["app"] != setName: // others do not take it back
		image := fmt.Sprint("app:", 1+r.Rand.IntN(3))
		if pod.Spec.Containers[0].Image != image {
			_ = r.disrupt(pod.Name, policyv1beta1.Update, func() {
				r.touched[pod.Name] = r.Now()
				r.Change(podKey(pod.Name), func(o client.Object) { o.(*corev1.Pod).Spec.Containers[0].Image = image })
			})
		}
	case n == 7:
		const label = unavailablePrefix + "x"
		if _, has := pod.Labels[label]; has {
			r.Change(podKey(pod.Name), func(o client.Object) { delete(o.GetLabels(), label) })
			return
		}
		_ = r.disrupt(pod.Name, policyv1beta1.Update, func() {
			r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()[label] = "" })
		})
	case n == 8:
		r.node.Crash(pod.Name)
	case n == 9:
		r.node.Fail(pod.Name)
	case n == 10 && r.Chance(0.5):
		r.Change(podKey(pod.Name), func(o client.Object) {
			metav1.SetMetaDataAnnotation(&o.(*corev1.Pod).ObjectMeta, "pub.kruise.io/no-protect", fmt.Sprint(r.Chance(0.5)))
		})
	case n == 11:
		for key, values := range map[string][]string{"tier": {"spare", "main"}} {
			value := values[r.Rand.IntN(2)]
			r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()[key] = value })
		}
		if r.Chance(0.3) {
			team := []string{"a", "a", "b"}[r.Rand.IntN(3)]
			r.Change(podKey(pod.Name), func(o client.Object) { o.GetLabels()["team"] = team })
		}
	case n == 12: // PUB-076 (part)
		other := []string{"", "b0", "b1", "b2", "nobody"}[r.Rand.IntN(5)]
		r.Change(podKey(pod.Name), func(o client.Object) {
			annotations := o.GetAnnotations()
			for _, key := range []string{"pub.kruise.io/related-pub", "kruise.io/related-pub"} {
				if delete(annotations, key); other != "" {
					if annotations == nil {
						annotations = map[string]string{}
					}
					annotations[key] = other
				}
			}
			o.SetAnnotations(annotations)
		})
	case n == 13 || n > 16:
		r.edit(fmt.Sprint("b", r.Rand.IntN(3)), r.number)
	case n == 14:
		r.Remove(budgetKey(fmt.Sprint("b", r.Rand.IntN(3))))
	case n == 15:
		r.newBudget(r.Rand.IntN(3))
	case n == 16 && r.Chance(0.2):
		r.Remove(simulation.Key{Kind: "ReplicaSet", Name: "rs"})
	}
}

const unavailablePrefix = "unavailable-pod.kruise.io/"
