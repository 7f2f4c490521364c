//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/readiness"
	"github.com/afloat-project/afloat/internal/kinds/uniteddeployment"
)

// hosts are node selector terms by name: each of the nodes is a zone, and "nowhere" one without a node.
func hosts(t *testing.T) func(name string) string {
	nodes := kubelets(t)
	return func(name string) string {
		host := name
		if len(name) == 1 {
			host = nodes[int(name[0]-'a')].Labels[corev1.LabelHostname]
		}
		return `nodeSelectorTerm: {matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [` + host + `]}]}`
	}
}

// united is a UnitedDeployment under test.
type united struct {
	t   *testing.T
	key client.ObjectKey
}

const unitedTemplate = `{metadata: {labels: {app: web}}, spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}},
	spec: {terminationGracePeriodSeconds: 1, containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent}]}}}}`

func unite(t *testing.T, kind, spec string) *united {
	t.Helper()
	space := namespace(t)
	apply(t, `{apiVersion: apps.kruise.io/v1beta1, kind: UnitedDeployment, metadata: {namespace: `+space+`, name: web}, spec: {selector: {matchLabels: {app: web}},
		template: {`+kind+`: `+unitedTemplate+`}, `+spec+`}}`)
	return &united{t, client.ObjectKey{Namespace: space, Name: "web"}}
}

func (u *united) get(ctx context.Context) *appsv1beta1.UnitedDeployment {
	object := &appsv1beta1.UnitedDeployment{}
	if err := kube.Get(ctx, u.key, object); err != nil {
		u.t.Fatal(err)
	}
	return object
}

func (u *united) change(patch string) {
	u.t.Helper()
	if err := kube.Patch(u.t.Context(), u.get(u.t.Context()), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		u.t.Fatal(err)
	}
}

// settled waits until the subsets have ready pods like "a=2 b=1", all by their nodes, and returns the pods.
func (u *united) settled(want string) []corev1.Pod {
	u.t.Helper()
	var pods corev1.PodList
	eventually(u.t, want, func(ctx context.Context) string {
		object := u.get(ctx)
		if err := kube.List(ctx, &pods, client.InNamespace(u.key.Namespace)); err != nil {
			u.t.Fatal(err)
		}
		ready := map[string]int{}
		for i := range pods.Items {
			if pod := &pods.Items[i]; readiness.Active(pod) && readiness.Ready(pod) {
				ready[pod.Labels[uniteddeployment.SubsetName]]++
			}
		}
		var got []string
		for _, s := range object.Spec.Topology.Subsets {
			got = append(got, fmt.Sprintf("%s=%d", s.Name, ready[s.Name]))
			delete(ready, s.Name)
		}
		if text := strings.Join(got, " "); text != want || len(ready) > 0 || object.Status.ObservedGeneration != object.Generation {
			return fmt.Sprintf("%s and %v; %+v", text, ready, object.Status)
		}
		return ""
	})
	return pods.Items
}

// UD-001, UD-100 (part), UD-065 (part): CloneSets in two zones take a new image in place, one subset under
// its partition; a subset that is removed goes, and the others get its pods.
func TestUnitedCloneSets(t *testing.T) {
	t.Parallel()
	zone := hosts(t)
	u := unite(t, "cloneSetTemplate", `replicas: 4, topology: {subsets: [{name: a, `+zone("a")+`}, {name: b, `+zone("b")+`}]}`)
	before := map[types.UID]bool{}
	for _, pod := range u.settled("a=2 b=2") {
		before[pod.UID] = true
		if host := kubelets(t)[int(pod.Labels[uniteddeployment.SubsetName][0]-'a')].Name; pod.Spec.NodeName != host {
			t.Errorf("%s is on %s instead of %s", pod.Name, pod.Spec.NodeName, host)
		}
	}
	u.change(`{"spec":{"updateStrategy":{"manualUpdate":{"partitions":{"b":1}}},"template":{"cloneSetTemplate":{"spec":{"updateStrategy":{"rollingUpdate":{"podUpdatePolicy":"InPlaceIfPossible"}},
		"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:1.27","imagePullPolicy":"IfNotPresent"}]}}}}}}}`)
	updated := func(want int32) {
		t.Helper()
		eventually(t, fmt.Sprint(want, " updated"), func(ctx context.Context) string {
			if status := u.get(ctx).Status; status.UpdatedReadyReplicas != want || status.ReadyReplicas != 4 {
				return fmt.Sprintf("%+v", status)
			}
			return ""
		})
	}
	updated(3)
	u.change(`{"spec":{"updateStrategy":{"manualUpdate":{"partitions":{"b":0}}}}}`)
	updated(4)
	for _, pod := range u.settled("a=2 b=2") {
		if !before[pod.UID] || pod.Spec.Containers[0].Image != "nginx:1.27" {
			t.Errorf("%s was not updated in place: %s", pod.Name, pod.Spec.Containers[0].Image)
		}
	}
	eventually(t, "one revision", func(ctx context.Context) string {
		if status := u.get(ctx).Status; status.CurrentRevision != status.UpdatedRevision {
			return fmt.Sprintf("%+v", status)
		}
		return ""
	})
	u.change(`{"spec":{"updateStrategy":null,"topology":{"subsets":[{"name":"b",` + jsonTerm(t, "b") + `}]}}}`)
	u.settled("b=4")
}

// jsonTerm is a node selector term of a zone as the member of a JSON object.
func jsonTerm(t *testing.T, name string) string {
	return fmt.Sprintf(`"nodeSelectorTerm":{"matchExpressions":[{"key":"kubernetes.io/hostname","operator":"In","values":[%q]}]}`,
		kubelets(t)[int(name[0]-'a')].Labels[corev1.LabelHostname])
}

// UD-095 (part), UD-096 (part), UD-018 (part), UD-066 (part): pods of Deployments that find no node go to
// another zone; an autoscaler's scaling reaches the subsets; and Deployments are exchanged for CloneSets.
func TestUnitedDeploymentsAdapt(t *testing.T) {
	t.Parallel()
	zone := hosts(t)
	u := unite(t, "deploymentTemplate", `replicas: 3, topology: {scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 3, unschedulableDuration: 600}},
		subsets: [{name: a, maxReplicas: 1, `+zone("a")+`}, {name: nowhere, `+zone("nowhere")+`}, {name: c, `+zone("c")+`}]}`)
	u.settled("a=1 nowhere=0 c=2")
	scale := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
	if err := kube.SubResource("scale").Update(t.Context(), u.get(t.Context()), client.WithSubResourceBody(scale)); err != nil {
		t.Fatal(err)
	}
	u.settled("a=1 nowhere=0 c=4")
	u.change(`{"spec":{"template":{"deploymentTemplate":null,"cloneSetTemplate":` + unitedJSON + `}}}`)
	eventually(t, "no Deployments", func(ctx context.Context) string {
		var deployments appsv1.DeploymentList
		if err := kube.List(ctx, &deployments, client.InNamespace(u.key.Namespace)); err != nil {
			t.Fatal(err)
		}
		if len(deployments.Items) > 0 {
			return fmt.Sprintf("%d are left", len(deployments.Items))
		}
		return ""
	})
	u.settled("a=1 nowhere=0 c=4")
}

const unitedJSON = `{"metadata":{"labels":{"app":"web"}},"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},
	"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"nginx","image":"nginx:1.26","imagePullPolicy":"IfNotPresent"}]}}}}`

// UD-110 (part), UD-123 (part), UD-125 (part): pods that find no node have substitutes, which do not count
// twice.
func TestUnitedReservations(t *testing.T) {
	t.Parallel()
	zone := hosts(t)
	u := unite(t, "deploymentTemplate", `replicas: 2, topology: {scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 3, unschedulableDuration: 5,
		reserveUnschedulablePods: true}}, subsets: [{name: nowhere, `+zone("nowhere")+`}, {name: b, `+zone("b")+`}]}`)
	u.settled("nowhere=0 b=2")
	eventually(t, "two reserved", func(ctx context.Context) string {
		status := u.get(ctx).Status
		if status.ReservedPods != 2 || status.Replicas != 2 || !strings.HasSuffix(status.LabelSelector, "united-deployment-reserved-pod=false") {
			return fmt.Sprintf("%+v", status)
		}
		return ""
	})
}

// UD-072 (part), UD-026 (part): a StatefulSet whose broken pods its rolling update waits for gets over them.
func TestUnitedStatefulSetsGetOverBrokenPods(t *testing.T) {
	t.Parallel()
	zone := hosts(t)
	u := unite(t, "statefulSetTemplate", `replicas: 2, topology: {subsets: [{name: a, `+zone("a")+`}, {name: b, `+zone("b")+`}]}`)
	u.settled("a=1 b=1")
	image := `{"spec":{"template":{"statefulSetTemplate":{"spec":{"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:%s","imagePullPolicy":"IfNotPresent"}]}}}}}}}`
	u.change(fmt.Sprintf(image, "there-is-no-such-tag"))
	u.settled("a=0 b=0")
	u.change(fmt.Sprintf(image, "1.27"))
	u.settled("a=1 b=1")
}
