package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// broadcastJobOn5000 measures how quickly a BroadcastJob brings a pod to each node of a large cluster, and
// what events of its nodes cost. Containers of simulated nodes do not end: what is measured is the creation.
func broadcastJobOn5000(ctx context.Context, b *bench) error {
	const n = 5000
	if err := barePinned(ctx, b, n); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if _, err := b.memoryAtRest(ctx, "with 5,000 nodes"); err != nil {
		return err
	}
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return err
	}
	defer pods.close()
	jobs := b.sets.client.Resource(schema.GroupVersionResource{Group: "apps.kruise.io", Version: "v1beta1", Resource: "broadcastjobs"}).Namespace(ours)
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(jobSpec())
	if err != nil {
		return err
	}
	job := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "BroadcastJob",
		"metadata": map[string]any{"name": "check"}, "spec": map[string]any{"template": map[string]any{"spec": spec}}}}
	if _, err := b.managerStep(ctx, stepCreate, n, func(ctx context.Context) (begin, end time.Time, err error) {
		ready := pods.expect("", func() bool { return pods.serving[images[0]] == n })
		begin = time.Now()
		if _, err := jobs.Create(ctx, job, metav1.CreateOptions{}); err != nil {
			return begin, end, err
		}
		if end, err = pods.wait(ctx, "pods become ready", ready); err != nil {
			return begin, end, err
		}
		return begin, end, poll(ctx, "status of the job", 200*time.Millisecond, func(ctx context.Context) (bool, error) {
			found, err := jobs.Get(ctx, job.GetName(), metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			active, _, _ := unstructured.NestedInt64(found.Object, "status", "active")
			return active == n, nil
		})
	}); err != nil {
		return err
	}
	made, bare := b.report.find(stepCreate, false), b.report.find(stepCreate, true)
	b.report.atLeast("creation, part of the bare client's speed", 100*made.PodsPerSecond/bare.PodsPerSecond, 90, "%")
	b.report.atMost("creation, pod writes per pod", made.PodWrites, 2.1, "")
	b.report.figure("creation, manager CPU per pod", made.CPUPerPod, "ms")
	if _, err := b.memoryAtRest(ctx, "with 5,000 nodes and 5,000 pods"); err != nil {
		return err
	}
	return nodeEvents(ctx, b)
}

// jobSpec is the spec of pods that end.
func jobSpec() *corev1.PodSpec {
	spec := podSpec(images[0])
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &spec
}

// barePinned measures the bare client with pods such as a job's: one for each node, which the scheduler
// binds, and the gate that pods of all our workloads have (CRR-087 (part)).
func barePinned(ctx context.Context, b *bench, n int) error {
	c, end, err := b.startBare(ctx)
	if err != nil {
		return err
	}
	defer end()
	if _, err := b.bareStep(ctx, stepCreate, n, func(ctx context.Context) (time.Time, time.Time, error) {
		return c.createAs(ctx, n, images[0], func(i int, pod *corev1.Pod) {
			pod.Labels = map[string]string{"broadcastjob-name": "bare", "broadcastjob-controller-uid": string(pod.OwnerReferences[0].UID)}
			pod.Spec = *jobSpec()
			pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gates[1]}}
			pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: nodes.Only(fmt.Sprintf("sim%d", i+1))}}
		})
	}); err != nil {
		return err
	}
	_, err = b.bareStep(ctx, stepDelete, n, func(ctx context.Context) (time.Time, time.Time, error) { return c.remove(ctx, n) })
	return err
}
