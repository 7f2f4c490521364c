//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
)

// returning is a StatefulSet of either group whose places are remembered.
type returning struct {
	t                *testing.T
	space, api, name string
}

// patch merges into the set.
func (p *returning) patch(body string) {
	p.t.Helper()
	set := &unstructured.Unstructured{}
	set.SetAPIVersion(p.api)
	set.SetKind("StatefulSet")
	set.SetNamespace(p.space)
	set.SetName(p.name)
	if err := kube.Patch(p.t.Context(), set, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		p.t.Fatal(err)
	}
}

// remembered waits until pods are remembered, by their nodes; an empty node is none.
func (p *returning) remembered(step string, want map[string]string) {
	p.t.Helper()
	eventually(p.t, step, func(ctx context.Context) string {
		var state appsv1beta1.PersistentPodState
		if err := kube.Get(ctx, client.ObjectKey{Namespace: p.space, Name: p.name}, &state); err != nil {
			return err.Error()
		}
		for pod, node := range want {
			if state.Status.PodStates[pod].NodeName != node {
				return fmt.Sprintf("%s on %s: %+v", pod, node, state.Status)
			}
		}
		return ""
	})
}

// ready waits until a pod is ready that is not the former one, and returns it.
func (p *returning) ready(name string, former types.UID) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{}
	eventually(p.t, name+" is ready", func(ctx context.Context) string {
		*pod = corev1.Pod{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: p.space, Name: name}, pod); err != nil {
			return err.Error()
		}
		if pod.UID == former || !serves(pod) {
			return fmt.Sprintf("%s %+v", pod.UID, pod.Status)
		}
		return ""
	})
	return pod
}

// again deletes a pod, and returns the next one of its name once it is ready.
func (p *returning) again(pod *corev1.Pod) *corev1.Pod {
	p.t.Helper()
	if err := kube.Delete(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
	return p.ready(pod.Name, pod.UID)
}

// PPS-001 (part), PPS-003 (part), PPS-012 (part), PPS-032 (part), PPS-033 (part), PPS-037 (part),
// PPS-060 (part), PPS-063 (part), PPS-070 (part): pods of either StatefulSet come back to their nodes
// although the scheduler would prefer another, wait for a place that no node has, and are free after a
// scale-in.
func TestPodsComeBack(t *testing.T) {
	t.Parallel()
	for _, api := range []string{"apps/v1", "apps.kruise.io/v1beta1"} {
		t.Run(strings.Split(api, "/")[0], func(t *testing.T) {
			t.Parallel()
			nodes := kubelets(t)
			home, away := nodes[0].Name, nodes[1].Name
			p := &returning{t: t, space: namespace(t), api: api, name: "store"}
			// A label of this test alone stands for a node that may vanish.
			label := "e2e.afloat/" + p.space
			mark := func(value string) {
				t.Helper()
				node := &corev1.Node{}
				node.Name = home
				if err := kube.Patch(context.WithoutCancel(t.Context()), node, client.RawPatch(types.MergePatchType,
					[]byte(`{"metadata":{"labels":{"`+label+`":`+value+`}}}`))); err != nil {
					t.Error(err)
				}
			}
			mark(`"here"`)
			t.Cleanup(func() {
				node := &corev1.Node{}
				node.Name = home
				_ = kube.Patch(context.Background(), node, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+label+`":null}}}`)))
			})
			apply(t, `{apiVersion: `+api+`, kind: StatefulSet, metadata: {namespace: `+p.space+`, name: store, annotations: {kruise.io/auto-generate-persistent-pod-state: "true",
  kruise.io/required-persistent-topology: `+label+`, kruise.io/preferred-persistent-topology: kubernetes.io/hostname, kruise.io/persistent-pod-state-retention-policy: WhenDeleted}},
spec: {serviceName: store, replicas: 2, podManagementPolicy: Parallel, updateStrategy: {type: OnDelete}, selector: {matchLabels: {app: store}}, template: {metadata: {labels: {app: store}}, spec: {`+
				strings.ReplaceAll(nap, "MOUNTS", "")+`, nodeSelector: {kubernetes.io/hostname: `+home+`}}}}}`)
			p.remembered("both are ready", map[string]string{"store-0": home, "store-1": home})
			// From now on the scheduler has a reason to choose another node, and none to stay.
			p.patch(`{"spec":{"template":{"spec":{"nodeSelector":null,"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":100,"preference":{"matchExpressions":[` +
				`{"key":"kubernetes.io/hostname","operator":"In","values":["` + away + `"]}]}}]}}}}}}`)
			pod := p.again(p.ready("store-1", ""))
			if pod.Spec.NodeName != home || pod.Spec.NodeSelector[label] != "here" || pod.Annotations[pub.InjectedPersistentPodState] != "store" ||
				len(pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution) != 2 {
				t.Errorf("store-1 is on %s: %+v", pod.Spec.NodeName, pod.Spec)
			}
			// To none and back, while the place is not there: the must holds the pod until it is.
			p.patch(`{"spec":{"replicas":0}}`)
			for _, name := range []string{"store-0", "store-1"} {
				eventually(t, name+" is gone", func(ctx context.Context) string {
					if err := kube.Get(ctx, client.ObjectKey{Namespace: p.space, Name: name}, &corev1.Pod{}); !apierrors.IsNotFound(err) {
						return fmt.Sprint("it is there: ", err)
					}
					return ""
				})
			}
			mark("null")
			p.patch(`{"spec":{"replicas":1}}`)
			eventually(t, "store-0 waits", func(ctx context.Context) string {
				pod := &corev1.Pod{}
				if err := kube.Get(ctx, client.ObjectKey{Namespace: p.space, Name: "store-0"}, pod); err != nil {
					return err.Error()
				}
				for _, c := range pod.Status.Conditions {
					if c.Type == corev1.PodScheduled && c.Reason == corev1.PodReasonUnschedulable && pod.Spec.NodeSelector[label] == "here" {
						return ""
					}
				}
				return fmt.Sprintf("%+v", pod.Status)
			})
			mark(`"here"`)
			if pod := p.ready("store-0", ""); pod.Spec.NodeName != home {
				t.Errorf("store-0 is on %s", pod.Spec.NodeName)
			}
			// Scaled in, what is beyond is forgotten: the next one is as free as the first was.
			p.patch(`{"metadata":{"annotations":{"kruise.io/persistent-pod-state-retention-policy":"WhenScaled"}}}`)
			p.remembered("store-1 is forgotten", map[string]string{"store-0": home, "store-1": ""})
			p.patch(`{"spec":{"replicas":2}}`)
			if pod := p.ready("store-1", ""); len(pod.Spec.NodeSelector) > 0 || pod.Annotations[pub.InjectedPersistentPodState] != "" {
				t.Errorf("store-1 is on %s: %+v", pod.Spec.NodeName, pod.Spec.NodeSelector)
			}
		})
	}
}
