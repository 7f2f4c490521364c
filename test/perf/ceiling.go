package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// bareParallel is how many requests the bare client has in flight.
const bareParallel = 32

// gates are the readiness gates of pods that are updated in place: the first one is closed meanwhile.
var gates = []corev1.PodConditionType{"InPlaceUpdateReady", "KruisePodReady"}

// bareClient sends only the writes that no manager can avoid: it decides nothing, and reads nothing but a
// watch of its pods. These are such as a CloneSet's, since what a write costs the API server depends on what
// a pod has: an owner, the labels and the annotations of the wire, two gates.
type bareClient struct {
	kube      kubernetes.Interface
	namespace string
	pods      *observer
	slots     chan struct{}
	// annotations are further ones of the pods.
	annotations map[string]string
}

func newBareClient(kube kubernetes.Interface, namespace string, pods *observer) *bareClient {
	return &bareClient{kube: kube, namespace: namespace, pods: pods, slots: make(chan struct{}, bareParallel)}
}

// startBare starts a bare client, which has a watch of its own as any manager does; the harness has one too,
// as beside the manager. end ends both.
func (b *bench) startBare(ctx context.Context) (c *bareClient, end func(), err error) {
	harness, err := observe(ctx, b.kube, others)
	if err != nil {
		return nil, nil, err
	}
	pods, err := observe(ctx, b.bare, others)
	if err != nil {
		harness.close()
		return nil, nil, err
	}
	return newBareClient(b.bare, others, pods), func() { harness.close(); pods.close() }, nil
}

// each does something for 0 to n-1 at the same time and returns all errors, of which it keeps a few.
func each(n int, do func(int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for i := range n {
		wg.Go(func() {
			if err := do(i); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if len(errs) < 5 {
					errs = append(errs, err)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// request sends one request when there is room for it.
func (c *bareClient) request(send func() error) error {
	c.slots <- struct{}{}
	defer func() { <-c.slots }()
	return send()
}

func bareName(i int) string { return fmt.Sprintf("bare-%05d", i) }

// pod is what a pod is created as; owner is an object that exists, or the garbage collector would delete the
// pod.
func (c *bareClient) pod(i int, image string, owner *corev1.ConfigMap) *corev1.Pod {
	yes, name := true, bareName(i)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "bare-", Annotations: maps.Clone(c.annotations),
		Labels: map[string]string{"app": "bare", "apps.kruise.io/cloneset-instance-id": name[len("bare-"):],
			"controller-revision-hash": "bare-" + bareRevision, "pod-template-hash": bareRevision},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID, Controller: &yes,
			BlockOwnerDeletion: &yes}}}, Spec: podSpec(image)}
	for _, gate := range gates {
		pod.Spec.ReadinessGates = append(pod.Spec.ReadinessGates, corev1.PodReadinessGate{ConditionType: gate})
	}
	return pod
}

// owner returns an object that can own pods.
func (c *bareClient) owner(ctx context.Context) (*corev1.ConfigMap, error) {
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "owner-"}}
	return c.kube.CoreV1().ConfigMaps(c.namespace).Create(ctx, owner, metav1.CreateOptions{})
}

// create makes pods such as a CloneSet's.
func (c *bareClient) create(ctx context.Context, n int, image string) (begin, end time.Time, err error) {
	return c.createAs(ctx, n, image, func(int, *corev1.Pod) {})
}

// createAs makes pods as adjust wants them and opens their gates: the two writes of a created pod.
func (c *bareClient) createAs(ctx context.Context, n int, image string, adjust func(i int, pod *corev1.Pod)) (begin, end time.Time, err error) {
	owner, err := c.owner(ctx)
	if err != nil {
		return begin, end, err
	}
	ready := c.pods.expect("", func() bool { return c.pods.serving[image] == n })
	begin = time.Now()
	err = each(n, func(i int) error {
		pod := c.pod(i, image, owner)
		adjust(i, pod)
		if err := c.request(func() error {
			_, err := c.kube.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		}); err != nil {
			return err
		}
		// Before that, the scheduler and the node write to the pod too, which costs the API server more.
		started := c.pods.expect(pod.Name, func() bool { return c.pods.pods[pod.Name].running == image })
		if _, err := c.pods.wait(ctx, "pod "+pod.Name+" starts", started); err != nil {
			return err
		}
		var closed []corev1.PodConditionType
		for _, gate := range pod.Spec.ReadinessGates {
			closed = append(closed, gate.ConditionType)
		}
		return c.request(func() error { return c.patch(ctx, pod.Name, conditions("Normal", "True", closed...), "status") })
	})
	if err == nil {
		end, err = c.pods.wait(ctx, "bare pods become ready", ready)
	}
	return begin, end, err
}

// update moves n pods to the image by three writes each: out of service, image, into service. At most limit
// pods are out of service at a time; each counts until the watch shows it ready again.
func (c *bareClient) update(ctx context.Context, n, limit int, image string) (begin, end time.Time, err error) {
	all := c.pods.expect("", func() bool { return c.pods.serving[image] == n })
	budget := make(chan struct{}, limit)
	begin = time.Now()
	err = each(n, func(i int) error {
		budget <- struct{}{}
		defer func() { <-budget }()
		name := bareName(i)
		err := c.request(func() error {
			if err := c.patch(ctx, name, conditions("Updating", "False", gates[0], corev1.PodReady), "status"); err != nil {
				return err
			}
			return c.patch(ctx, name, newImage(image))
		})
		if err != nil {
			return err
		}
		restarted := c.pods.expect(name, func() bool { return c.pods.pods[name].running == image })
		if _, err := c.pods.wait(ctx, "container of "+name+" restarts", restarted); err != nil {
			return err
		}
		if err := c.request(func() error { return c.patch(ctx, name, conditions("Normal", "True", gates[0]), "status") }); err != nil {
			return err
		}
		ready := c.pods.expect(name, func() bool { return c.pods.pods[name].serves(image) })
		_, err = c.pods.wait(ctx, "pod "+name+" becomes ready", ready)
		return err
	})
	if err == nil {
		end, err = c.pods.wait(ctx, "bare pods are updated", all)
	}
	return begin, end, err
}

// remove deletes the pods.
func (c *bareClient) remove(ctx context.Context, n int) (begin, end time.Time, err error) {
	gone := c.pods.expect("", func() bool { return len(c.pods.pods) == 0 })
	begin = time.Now()
	err = each(n, func(i int) error {
		return c.request(func() error {
			return c.kube.CoreV1().Pods(c.namespace).Delete(ctx, bareName(i), metav1.DeleteOptions{})
		})
	})
	if err == nil {
		end, err = c.pods.wait(ctx, "bare pods end", gone)
	}
	return begin, end, err
}

// fill makes n pods without a controller, which are bound to a node at once, so that they cost the cluster as
// little as possible.
func (c *bareClient) fill(ctx context.Context, n, nodes int) error {
	ready := c.pods.expect("", func() bool { return c.pods.ready == n })
	err := each(n, func(i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: bareName(i), Labels: map[string]string{"app": "other"}},
			Spec: usualPodSpec(images[0])}
		pod.Spec.NodeName = fmt.Sprintf("sim%d", i%nodes+1)
		return c.request(func() error {
			_, err := c.kube.CoreV1().Pods(c.namespace).Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	})
	if err == nil {
		_, err = c.pods.wait(ctx, "pods of others become ready", ready)
	}
	return err
}

func (c *bareClient) patch(ctx context.Context, name, body string, subresource ...string) error {
	_, err := c.kube.CoreV1().Pods(c.namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{},
		subresource...)
	return err
}

// bareRevision is the hash of the revision that pods are created at, newRevision that of the one that they
// are moved to.
const bareRevision, newRevision = "7bd9dcf6c9", "6d4cf56db6"

// newImage is a patch that brings an image to a pod, with what has to be remembered of the update.
func newImage(image string) string {
	state := fmt.Sprintf(`{"revision":"bare-%s","updateTimestamp":%q,"lastContainerStatuses":{"app":{"imageID":"sim://before"}},`+
		`"containerBatchesRecord":[{"timestamp":%[2]q,"containers":["app"]}]}`, newRevision, time.Now().UTC().Format(time.RFC3339))
	return fmt.Sprintf(`{"metadata":{"annotations":{"apps.kruise.io/inplace-update-state":%q},"labels":{"controller-revision-hash":"bare-%s",`+
		`"pod-template-hash":%[2]q}},"spec":{"containers":[{"name":"app","image":%[3]q}]}}`, state, newRevision, image)
}

// conditions is a patch that sets conditions, and the state of the lifecycle with them.
func conditions(state, status string, types ...corev1.PodConditionType) string {
	now := time.Now().UTC().Format(time.RFC3339)
	list := make([]string, len(types))
	for i, kind := range types {
		list[i] = fmt.Sprintf(`{"type":%q,"status":%q,"lastTransitionTime":%q}`, kind, status, now)
	}
	return fmt.Sprintf(`{"metadata":{"labels":{"lifecycle.apps.kruise.io/state":%q},"annotations":{"lifecycle.apps.kruise.io/timestamp":%q}},`+
		`"status":{"conditions":[%s]}}`, state, now, strings.Join(list, ","))
}
