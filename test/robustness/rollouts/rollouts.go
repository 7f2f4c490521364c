// Package rollouts makes workloads of many kinds, and changes them as users do.
package rollouts

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/test/robustness/cluster"
	"github.com/afloat-project/afloat/test/robustness/record"
)

// Patience is how long a user waits for a rollout before the next change.
const Patience = 40 * time.Second

// Rollouts are the users of the cluster.
type Rollouts struct {
	cluster *cluster.Cluster
	record  *record.Writer
	seed    uint64
	// real is set if kubelets run the pods, and not a simulation.
	real bool
}

// New makes the namespaces.
func New(ctx context.Context, c *cluster.Cluster, to *record.Writer, seed uint64, real bool) (*Rollouts, error) {
	for _, name := range append([]string{Namespace}, targets...) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := c.Kube.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("the cluster must be fresh: %w", err)
		}
	}
	taken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: shared}, Data: map[string]string{"of": "another"}}
	if _, err := c.Kube.CoreV1().ConfigMaps(occupied).Create(ctx, taken, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("making a ConfigMap of somebody else: %w", err)
	}
	return &Rollouts{cluster: c, record: to, seed: seed, real: real}, nil
}

func (r *Rollouts) workloads() []workload {
	if r.real {
		return realWorkloads()
	}
	return workloads()
}

// Create makes all workloads. What a webhook that does not serve yet refuses is tried again.
func (r *Rollouts) Create(ctx context.Context) error {
	for _, w := range r.workloads() {
		if err := r.create(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rollouts) create(ctx context.Context, w workload) error {
	return r.again(ctx, "making "+w.resource.Resource+" "+w.name, func(ctx context.Context) error { return r.make(ctx, w) })
}

// make tries once to make an object.
func (r *Rollouts) make(ctx context.Context, w workload) error {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	var spec map[string]any
	if err := yaml.Unmarshal([]byte(w.spec), &spec); err != nil {
		return fmt.Errorf("the spec of %s: %w", w.name, err)
	}
	object.Object["spec"] = spec
	object.SetAPIVersion(w.resource.GroupVersion().String())
	object.SetKind(kinds[w.resource.Resource])
	object.SetName(w.name)
	_, err := r.client(w).Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

var kinds = map[string]string{
	"clonesets": "CloneSet", "statefulsets": "StatefulSet", "daemonsets": "DaemonSet", "sidecarsets": "SidecarSet",
	"uniteddeployments": "UnitedDeployment", "workloadspreads": "WorkloadSpread", "broadcastjobs": "BroadcastJob",
	"podunavailablebudgets": "PodUnavailableBudget", "advancedcronjobs": "AdvancedCronJob",
	"ephemeraljobs": "EphemeralJob", "resourcedistributions": "ResourceDistribution",
	"persistentpodstates": "PersistentPodState", "containerrecreaterequests": "ContainerRecreateRequest",
	"imagepulljobs": "ImagePullJob",
}

func (r *Rollouts) client(w workload) dynamic.ResourceInterface {
	all := r.cluster.Dynamic.Resource(w.resource)
	if w.cluster {
		return all
	}
	return all.Namespace(Namespace)
}

// again does something until it succeeds, as users do who see an error. It returns an error only if the
// context ends, and then the last one.
func (r *Rollouts) again(ctx context.Context, what string, do func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		last = do(ctx)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("%s: %w, last %w", what, err, errors.Join(last, err))
	}
	return nil
}

// Play changes all workloads until the context ends.
func (r *Rollouts) Play(ctx context.Context) {
	var all sync.WaitGroup
	for number, w := range r.workloads() {
		if len(w.changes) > 0 {
			draw := rand.New(rand.NewPCG(r.seed, uint64(number))) //nolint:gosec // chance that can be repeated
			all.Go(func() { r.play(ctx, w, draw) })
		}
	}
	if r.real {
		all.Go(func() { r.playJobs(ctx, realBroadcastJob) })
		all.Go(func() { r.playJobs(ctx, realEphemeralJob) })
		all.Go(func() { r.playJobs(ctx, pullJob) })
		all.Go(func() { r.playRestarts(ctx) })
	} else {
		all.Go(func() { r.playJobs(ctx, broadcastJob) })
		all.Go(func() { r.playJobs(ctx, ephemeralJob) })
		all.Go(func() { r.playCron(ctx) })
	}
	all.Wait()
}

// play changes one workload, waits for its rollout, or until patience ends, and goes on.
func (r *Rollouts) play(ctx context.Context, w workload, draw *rand.Rand) {
	for ctx.Err() == nil {
		patch := w.changes[draw.IntN(len(w.changes))](draw)
		besides, choice := w.besides != nil && (draw.IntN(3) == 0 || w.pace > 0), draw.Uint64()
		hurry := draw.IntN(4) == 0 // the next change comes while this one is rolled out
		err := r.again(ctx, "changing "+w.name, func(ctx context.Context) error {
			_, err := r.client(w).Patch(ctx, w.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		})
		if err != nil {
			return
		}
		limit := Patience
		if hurry && w.pace == 0 {
			limit = 3 * time.Second
		}
		settle := func() { r.settled(ctx, w, limit, limit < Patience, over) }
		if w.pace > 0 { // what users do besides is known to all managers when the next change comes
			settle()
		}
		if besides {
			if err := w.besides(ctx, r, w, choice); err != nil && ctx.Err() == nil {
				log.Printf("What users do besides with %s: %v", w.name, err)
			}
		}
		if w.pace == 0 {
			settle()
		}
		if length := w.pace + w.lull; draw.IntN(3) == 0 || length == w.pace {
			waitFor(ctx, length)
		}
	}
}

// waitFor waits, at most until the context ends.
func waitFor(ctx context.Context, length time.Duration) {
	select {
	case <-time.After(length):
	case <-ctx.Done():
	}
}

// settled waits until a rollout that has just begun is over, and a moment longer, and records what came of it.
func (r *Rollouts) settled(
	ctx context.Context, w workload, patience time.Duration, hurried bool, over func(*unstructured.Unstructured) bool,
) {
	of, seen := record.Rollout{Resource: w.resource.Resource, Name: w.name, Begin: time.Now(), Hurried: hurried}, 0
	// Whether it is over or takes too long, the user goes on.
	_ = wait.PollUntilContextTimeout(ctx, time.Second, patience, false, func(ctx context.Context) (bool, error) {
		object, err := r.client(w).Get(ctx, w.name, metav1.GetOptions{})
		if err == nil && over(object) {
			seen++
		}
		return seen > 1, nil
	})
	of.End, of.Over = time.Now(), seen > 1
	of.Hurried = !of.Over && (of.Hurried || ctx.Err() != nil)
	r.record.Write(record.Line{Rollout: &of})
}

// over reports whether the status of a workload says that all pods are as the spec has them.
func over(object *unstructured.Unstructured) bool {
	number := func(fields ...string) int64 {
		n, _, _ := unstructured.NestedInt64(object.Object, fields...)
		return n
	}
	if number("status", "observedGeneration") != object.GetGeneration() {
		return false
	}
	switch object.GetKind() {
	case "DaemonSet":
		all := number("status", "desiredNumberScheduled")
		return number("status", "updatedNumberScheduled") == all && number("status", "numberAvailable") == all
	case "ResourceDistribution":
		listed, _, _ := unstructured.NestedSlice(object.Object, "spec", "targets", "includedNamespaces", "list")
		others := slices.ContainsFunc(listed, func(of any) bool {
			m, ok := of.(map[string]any)
			return ok && m["name"] == occupied
		})
		failed := map[bool]int64{true: 1}[others]
		return number("status", "desired") == int64(len(listed)) && number("status", "failed") == failed
	case "SidecarSet":
		partition := number("spec", "updateStrategy", "partition")
		return number("status", "updatedReadyPods") >= number("status", "matchedPods")-partition
	default:
		all := number("spec", "replicas")
		partition := number("spec", "updateStrategy", "rollingUpdate", "partition")
		return number("status", "replicas") == all && number("status", "readyReplicas") == all &&
			number("status", "updatedReplicas") >= all-partition
	}
}

// pick returns one of the pods that a selector selects, and that are not going.
func (r *Rollouts) pick(ctx context.Context, selector string, choice uint64) (*corev1.Pod, error) {
	list, err := r.cluster.Kube.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	there := slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil })
	if len(there) == 0 {
		return nil, nil
	}
	slices.SortFunc(there, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return &there[choice%uint64(len(there))], nil
}

// Delete deletes a pod of any workload that is not guarded by a budget. It returns how many pods that hit.
func (r *Rollouts) Delete(ctx context.Context, choice uint64) (int, error) {
	pod, err := r.pick(ctx, "app,app!=guarded", choice)
	if err != nil || pod == nil {
		return 0, err
	}
	err = r.cluster.Kube.CoreV1().Pods(Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("deleting a pod: %w", err)
	}
	return 1, nil
}

// Evict asks for the eviction of a pod that is guarded by a budget, and returns how many budgets that asked. That they
// refuse it is no error.
func (r *Rollouts) Evict(ctx context.Context, choice uint64) (int, error) {
	pod, err := r.pick(ctx, "app=guarded", choice)
	if err != nil || pod == nil {
		return 0, err
	}
	err = r.cluster.Kube.PolicyV1().Evictions(Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: pod.Name}})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return 0, nil
	case err != nil && !apierrors.IsTooManyRequests(err) && !apierrors.IsForbidden(err):
		return 0, fmt.Errorf("evicting a pod: %w", err)
	}
	return 1, nil
}
