package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/podunavailablebudget"
	"github.com/afloat-project/afloat/internal/simulation"
)

type operation = policyv1beta1.PodUnavailableBudgetOperation

// answering is a manager that answers admission; the one that acts can answer its own requests.
func (r *budgetRun) answering(by *replica) *replica {
	var able []*replica
	for _, m := range r.managers {
		if !m.dead && (!m.busy || m == by) {
			able = append(able, m)
		}
	}
	if len(able) == 0 {
		return nil
	}
	return able[r.Rand.IntN(len(able))]
}

var errNoAnswer = apierrors.NewInternalError(errors.New("the webhook does not answer"))

// admit asks a manager whether the pod may be disrupted, as the API server does with the pod that it has; by
// is the manager that wants it, if it is one.
func (r *budgetRun) admit(pod *corev1.Pod, by operation, who *replica) error {
	m := r.answering(who)
	if m == nil {
		return errNoAnswer
	}
	err := error(errNoAnswer)
	ask := func() {
		guard, request := m.watch.Guard, Request{Pod: pod.DeepCopy(), By: by}
		if by == policyv1beta1.Evict {
			request.DryRun = true
			answer, e := guard.Book(context.Background(), request)
			if e != nil {
				err = apierrors.NewInternalError(e)
				return
			}
			if answer.Allowed && (answer.Booked || answer.Renewed) && !r.disruptionBudgetAllows(pod) {
				err = apierrors.NewTooManyRequests("PodDisruptionBudget", 0)
				return
			}
			request.DryRun = false
		}
		answer, e := guard.Book(context.Background(), request)
		switch {
		case m.dead || r.Dead():
		case e != nil:
			err = apierrors.NewInternalError(e)
		case answer.Allowed:
			err = nil
		default:
			err = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, pod.Name, errors.New(answer.Reason))
			r.oracle.refused(pod, answer.Budget)
		}
		r.tracef("%s on %s of %s: %s %v", m.name, by, pod.Name, answer.Reason, e)
	}
	if m == who {
		ask()
	} else {
		m.as(ask)
		if m.dead {
			err = errNoAnswer
		}
	}
	return err
}

// refused: a budget that has been gone for longer than a request takes refuses nothing (PUB-089, PUB-D11).
func (o *oracle) refused(pod *corev1.Pod, by *policyv1beta1.PodUnavailableBudget) {
	o.observe()
	o.r.refusals++
	for i := len(o.worlds) - 1; i >= 0; i-- {
		if slices.ContainsFunc(o.worlds[i].budgets, func(b *policyv1beta1.PodUnavailableBudget) bool { return b.UID == by.UID }) {
			return
		}
		if o.r.Now().Sub(o.worlds[i].at) > requestAtMost {
			break
		}
	}
	o.r.fail("budget %s refuses pod %s, and is gone", by.Name, pod.Name)
}

// admitPatch is the admission of a manager's patch of a pod.
func (r *budgetRun) admitPatch(m *replica, name string, patch client.Patch) error {
	pod, _ := r.Get(podKey(name)).(*corev1.Pod)
	if pod == nil {
		return nil
	}
	body, err := patch.Data(pod)
	if err != nil {
		return err
	}
	var guard struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(body, &guard); err != nil || guard.Metadata.ResourceVersion != pod.ResourceVersion {
		return err // it ends in a conflict
	}
	before, err := json.Marshal(pod)
	if err != nil {
		return err
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, pod)
	if err != nil {
		return err
	}
	by, err := podunavailablebudget.Changed(before, after)
	if err != nil || by == "" {
		return err
	}
	return r.admit(pod, by, m)
}

// mutate is the webhook of creations, which is not always asked.
func (r *budgetRun) mutate(pod *corev1.Pod) {
	m := r.answering(nil)
	if m == nil || r.unasked || r.Chance(0.4) {
		return
	}
	m.as(func() {
		if budget, err := m.watch.Guard.Covering(context.Background(), pod); err == nil && budget != nil {
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, pub.RelatedBudget, budget.Name)
			metav1.SetMetaDataAnnotation(&pod.ObjectMeta, pub.RelatedBudgetLegacy, budget.Name)
		}
	})
}

// disrupt does something to a pod as anybody but a manager does: it is admitted, some time later it takes
// effect, and it is admitted again if the pod has changed meanwhile; but evictions are admitted once, and
// then a PodDisruptionBudget is asked.
func (r *budgetRun) disrupt(name string, by operation, effect func()) error {
	for range 3 {
		pod, _ := r.Get(podKey(name)).(*corev1.Pod)
		if pod == nil || pod.DeletionTimestamp != nil {
			return nil
		}
		served := r.oracle.inService(pod)
		if err := r.admit(pod, by, nil); err != nil {
			return err
		}
		r.meddle()
		now, _ := r.Get(podKey(name)).(*corev1.Pod)
		switch {
		case now == nil || now.UID != pod.UID || now.DeletionTimestamp != nil:
			return nil
		case by == policyv1beta1.Evict && !r.disruptionBudgetAllows(now):
			return apierrors.NewTooManyRequests("PodDisruptionBudget", 0)
		case by != policyv1beta1.Evict && now.ResourceVersion != pod.ResourceVersion:
			continue
		}
		r.oracle.observe()
		if r.oracle.inService(now) && served {
			r.oracle.judge(now, by)
		}
		r.tracef("%s of %s", by, name)
		effect()
		r.oracle.observe()
		return nil
	}
	return errors.New("the pod changes too fast")
}

// remove deletes a pod as a user does.
func (r *budgetRun) remove(name string) error {
	return r.disrupt(name, policyv1beta1.Delete, func() { r.EndGracefully(podKey(name)) })
}

// disruptionBudgetAllows is the PodDisruptionBudget of all pods of app web, if there is one.
func (r *budgetRun) disruptionBudgetAllows(pod *corev1.Pod) bool {
	healthy := 0
	for _, other := range r.pods() {
		if other.Labels["app"] == pod.Labels["app"] && active(other) && ready(other) {
			healthy++
		}
	}
	return pod.Labels["app"] != setName || !ready(pod) || healthy > r.healthy
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// drain evicts the pods that it is to evict, and tells whether it did anything.
func (r *budgetRun) drain() bool {
	moved := false
	for _, uid := range slices.Clone(r.draining) {
		pod := r.byUID(uid)
		if pod == nil {
			r.draining = slices.DeleteFunc(r.draining, func(other types.UID) bool { return other == uid })
			continue
		}
		if pod.DeletionTimestamp == nil && r.disrupt(pod.Name, policyv1beta1.Evict, func() { r.EndGracefully(podKey(pod.Name)) }) == nil {
			moved = true
		}
	}
	return moved
}

func (r *budgetRun) byUID(uid types.UID) *corev1.Pod {
	for _, pod := range r.pods() {
		if pod.UID == uid {
			return pod
		}
	}
	return nil
}

func (r *budgetRun) ofController(uid types.UID) []*corev1.Pod {
	return slices.DeleteFunc(r.pods(), func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOfNoCopy(pod)
		return owner == nil || owner.UID != uid || !active(pod)
	})
}

// replicaSets lets the controller of ReplicaSets act once, and tells whether it did.
func (r *budgetRun) replicaSets() bool {
	moved := false
	for _, object := range r.List("ReplicaSet", false) {
		rs := object.(*appsv1.ReplicaSet)
		pods := r.ofController(rs.UID)
		switch n := len(pods) - int(*rs.Spec.Replicas); {
		case n < 0:
			yes := true
			r.created++
			name := fmt.Sprintf("%s-%d", rs.Name, r.created)
			for i := 0; rs.Name == "rs"; i++ { // some controllers give names of pods that are gone
				if name = fmt.Sprint("rs-", i); r.Get(podKey(name)) == nil {
					break
				}
			}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
				Labels: map[string]string{"app": rs.Labels["app"], "team": "a"}, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1",
					Kind: "ReplicaSet", Name: rs.Name, UID: rs.UID, Controller: &yes}}}}
			pod.Status.Phase = corev1.PodPending
			pod.Spec.Containers = []corev1.Container{{Name: "app", Image: "app:1"}}
			r.mutate(pod)
			r.Store(podKey(pod.Name), pod)
			moved = true
		case n > 0:
			slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
				if ready(a) == ready(b) {
					return 0
				}
				if ready(b) {
					return -1
				}
				return 1
			})
			moved = r.remove(pods[0].Name) == nil || moved
		}
	}
	return r.deployment() || moved
}

// deployment lets the controller of Deployments act once: there is one more pod than there shall be at most,
// and one fewer at least.
func (r *budgetRun) deployment() bool {
	deployment, _ := r.Get(deploymentKey).(*appsv1.Deployment)
	if deployment == nil {
		return false
	}
	var latest *appsv1.ReplicaSet
	total, serving := int32(0), int32(0)
	for _, object := range r.List("ReplicaSet", false) {
		rs := object.(*appsv1.ReplicaSet)
		if !metav1.IsControlledBy(rs, deployment) {
			continue
		}
		if rs.Name == "dep-"+deployment.Annotations["version"] {
			latest = rs
		}
		total += *rs.Spec.Replicas
		for _, pod := range r.ofController(rs.UID) {
			if ready(pod) {
				serving++
			}
		}
	}
	want := *deployment.Spec.Replicas
	switch {
	case latest == nil:
		r.replicaSet("dep-"+deployment.Annotations["version"], "dep", 0, deployment)
	case *latest.Spec.Replicas > want:
		r.scale(simulation.Key{Kind: "ReplicaSet", Name: latest.Name}, want)
	case *latest.Spec.Replicas < want && total <= want:
		r.scale(simulation.Key{Kind: "ReplicaSet", Name: latest.Name}, *latest.Spec.Replicas+1)
	case total > want || serving > want-1 && total > *latest.Spec.Replicas:
		for _, object := range r.List("ReplicaSet", false) {
			rs := object.(*appsv1.ReplicaSet)
			if metav1.IsControlledBy(rs, deployment) && rs.Name != latest.Name && *rs.Spec.Replicas > 0 {
				r.scale(simulation.Key{Kind: "ReplicaSet", Name: rs.Name}, *rs.Spec.Replicas-1)
				return true
			}
		}
		return false
	default:
		return false
	}
	return true
}

func (r *budgetRun) replicaSet(name, app string, replicas int32, deployment *appsv1.Deployment) {
	rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": app}}}
	rs.Spec.Replicas = &replicas
	if deployment != nil {
		yes := true
		rs.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: deployment.Name, UID: deployment.UID, Controller: &yes}}
	}
	r.Store(simulation.Key{Kind: "ReplicaSet", Name: name}, rs)
}

// collectGarbage deletes pods whose controller is gone, as anybody does (PUB-094 (part)).
func (r *budgetRun) collectGarbage() bool {
	moved := false
	for _, pod := range r.pods() {
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || r.Get(simulation.Key{Kind: owner.Kind, Name: owner.Name}) != nil || pod.DeletionTimestamp != nil {
			continue
		}
		moved = r.remove(pod.Name) == nil || moved
	}
	return moved
}

// kubelet steps a pod; failed ones are collected.
func (r *budgetRun) kubelet(name string) bool {
	pod, _ := r.Get(podKey(name)).(*corev1.Pod)
	if pod == nil {
		return false
	}
	if pod.Status.Phase == corev1.PodFailed && pod.DeletionTimestamp == nil {
		r.EndGracefully(podKey(name))
		return true
	}
	delete(r.touched, name)
	return r.node.Step(name)
}

// kubelets let no change of a pod's image wait for longer than a booking lives.
func (r *budgetRun) kubelets() {
	for _, name := range slices.Sorted(maps.Keys(r.touched)) {
		if r.Now().Sub(r.touched[name]) > kubeletAtMost {
			r.kubelet(name)
		}
	}
}
