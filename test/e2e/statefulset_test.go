//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/test/story"
)

// stateful is a StatefulSet under test, with all that happens to its pods.
type stateful struct {
	*workload
	events <-chan watch.Event
	known  map[string]*corev1.Pod
}

// declare makes a StatefulSet of nginx pods from a v1beta1 spec, with the usual selector and template where
// it has none.
func declare(t *testing.T, name, spec string) *stateful {
	t.Helper()
	set := &appsv1beta1.StatefulSet{}
	document(t, set, name, namespace(t), spec)
	s := follow(t, set)
	if err := kube.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	return s
}

// follow watches the pods of a StatefulSet, which need not exist yet.
func follow(t *testing.T, set *appsv1beta1.StatefulSet) *stateful {
	t.Helper()
	return &stateful{workload: &workload{t: t, object: set.DeepCopy(), key: client.ObjectKeyFromObject(set)},
		events: watchPods(t, set.Namespace), known: map[string]*corev1.Pod{}}
}

// settle makes a StatefulSet, and waits until all of its pods are available.
func settle(t *testing.T, name, spec string) *stateful {
	t.Helper()
	s := declare(t, name, spec)
	s.settled()
	s.seen = s.pods()
	s.told()
	return s
}

func (s *stateful) get() *appsv1beta1.StatefulSet {
	s.t.Helper()
	set := &appsv1beta1.StatefulSet{}
	if err := kube.Get(s.t.Context(), s.key, set); err != nil {
		s.t.Fatal(err)
	}
	return set
}

// settled waits until all pods are available, and as many updated as partition leaves.
func (s *stateful) settled() {
	s.t.Helper()
	eventually(s.t, "the StatefulSet", func(context.Context) string {
		set := s.get()
		replicas, updated, is := *set.Spec.Replicas, *set.Spec.Replicas, set.Status
		if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
			updated -= min(*r.Partition, updated)
		}
		if is.ObservedGeneration == set.Generation && is.Replicas == replicas && is.AvailableReplicas == replicas &&
			is.UpdatedAvailableReplicas >= updated && int32(len(s.pods())) == replicas {
			return ""
		}
		return fmt.Sprintf("%+v", is)
	})
}

// image gives the container of the template a new image.
func (s *stateful) image(image string) {
	s.t.Helper()
	patch := client.RawPatch(types.JSONPatchType,
		[]byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+image+`"}]`))
	if err := kube.Patch(s.t.Context(), s.object.DeepCopyObject().(client.Object), patch); err != nil {
		s.t.Fatal(err)
	}
}

// pass waits until the controller has made a whole pass over what is there now.
func (s *stateful) pass() {
	s.t.Helper()
	set := s.get()
	limit := *set.Spec.RevisionHistoryLimit + 1
	s.change(fmt.Sprintf(`spec: {revisionHistoryLimit: %d}`, limit))
	eventually(s.t, "a pass", func(context.Context) string {
		if now := s.get(); now.Status.ObservedGeneration <= set.Generation {
			return fmt.Sprint("generation ", now.Status.ObservedGeneration, " is observed")
		}
		return ""
	})
}

// told returns what happened to pods since it was last asked, each named by its ordinal, in the order in
// which it happened; lowest is how many of them were ready, at the least.
func (s *stateful) told() (happened []string, lowest int) {
	s.t.Helper()
	lowest = s.ready()
	limit := time.After(patience)
	for {
		select {
		case event := <-s.events:
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				s.t.Fatalf("watch: %v", event)
			}
			happened = append(happened, s.tell(event.Type, pod)...)
			lowest = min(lowest, s.ready())
		case <-time.After(100 * time.Millisecond): // all that came is told; has all come?
			var list corev1.PodList
			if err := kube.List(s.t.Context(), &list, client.InNamespace(s.key.Namespace)); err != nil {
				s.t.Fatal(err)
			}
			current := len(list.Items) == len(s.known)
			for i := range list.Items {
				known := s.known[list.Items[i].Name]
				current = current && known != nil && known.ResourceVersion == list.Items[i].ResourceVersion
			}
			if current && len(s.events) == 0 {
				return happened, lowest
			}
		case <-limit:
			s.t.Fatalf("the watch lags: %v", happened)
		}
	}
}

// serves tells whether a pod is ready. A kubelet that has not seen yet that the gate of an update is closed
// may write Ready once more.
func serves(pod *corev1.Pod) bool { return story.Ready(pod) && !conditionFalse(pod) }

func (s *stateful) ready() int {
	n := 0
	for _, pod := range s.known {
		if pod.DeletionTimestamp == nil && serves(pod) {
			n++
		}
	}
	return n
}

// tell says what an event changes of a pod.
func (s *stateful) tell(kind watch.EventType, pod *corev1.Pod) (happened []string) {
	ordinal := strings.TrimPrefix(pod.Name, s.key.Name+"-")
	say := func(what string) { happened = append(happened, ordinal+" "+what) }
	old := s.known[pod.Name]
	s.known[pod.Name] = pod
	if kind == watch.Deleted {
		delete(s.known, pod.Name)
		say("gone")
		return happened
	}
	if old == nil {
		say("created")
		old = &corev1.Pod{Spec: pod.Spec}
	}
	if old.DeletionTimestamp == nil && pod.DeletionTimestamp != nil {
		say("goes")
	}
	if image := pod.Spec.Containers[0].Image; old.Spec.Containers[0].Image != image {
		say(image)
	}
	if ready := serves(pod); ready != serves(old) && pod.DeletionTimestamp == nil {
		say(map[bool]string{true: "ready", false: "down"}[ready])
	}
	return happened
}

// happened checks what happened to pods since it was last asked.
func (s *stateful) happened(want ...string) {
	s.t.Helper()
	if got, _ := s.told(); !slices.Equal(got, want) {
		s.t.Errorf("it happened: %s\nand should: %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// logs returns what the container of a pod wrote.
func logs(t *testing.T, namespace, pod string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	text, err := clients.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// speaking is a pod template whose container writes what the shell command says, and then waits.
func speaking(command, more string) string {
	return `
template:
  spec:
    containers:
    - {name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: [sh, -c, "` + command +
		`; trap 'exit 0' TERM; while true; do sleep 0.2; done"]` + more + `}
`
}

const inPlaceInOrder = "\nupdateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}\n"

// TestStatefulSetInOrder: pods come, are updated, rolled back and taken away one after the other, each with a
// name and a host name of its own (ASTS-082 (part), ASTS-087 (part), ASTS-093 (part), ASTS-097 (part),
// ASTS-098 (part), ASTS-121 (part), ASTS-126 (part), ASTS-127, ASTS-148 (part), ASTS-161 (part)).
func TestStatefulSetInOrder(t *testing.T) {
	t.Parallel()
	s := declare(t, "ordered", "replicas: 3\nserviceName: ordered"+inPlaceInOrder+speaking("hostname; hostname -i", ""))
	s.settled()
	s.happened("0 created", "0 ready", "1 created", "1 ready", "2 created", "2 ready")
	s.seen = s.pods()
	first := s.get().Status.UpdateRevision
	for i := range 3 {
		name := fmt.Sprint("ordered-", i)
		pod := s.seen[name]
		for key, want := range map[string]string{"statefulset.kubernetes.io/pod-name": name,
			"apps.kubernetes.io/pod-index": fmt.Sprint(i), "controller-revision-hash": first} {
			if pod.Labels[key] != want {
				t.Errorf("pod %q has label %s %q, not %q", name, key, pod.Labels[key], want)
			}
		}
		if said := logs(t, s.key.Namespace, name); said != name+"\n"+pod.Status.PodIP || pod.Spec.Subdomain != "ordered" {
			t.Errorf("pod %s with subdomain %q and IP %s finds itself as %q", name, pod.Spec.Subdomain, pod.Status.PodIP, said)
		}
	}

	s.image("app:v2")
	s.settled()
	s.happened("2 down", "2 app:v2", "2 ready", "1 down", "1 app:v2", "1 ready", "0 down", "0 app:v2", "0 ready")
	s.inPlace("app:v2", 1)

	s.image("app:v1")
	s.settled()
	s.happened("2 down", "2 app:v1", "2 ready", "1 down", "1 app:v1", "1 ready", "0 down", "0 app:v1", "0 ready")
	s.inPlace("app:v1", 2)
	eventually(t, "the former revision", func(context.Context) string {
		if is := s.get().Status; is.UpdateRevision != first || is.CurrentRevision != first || is.CurrentReplicas != 3 {
			return fmt.Sprintf("%+v, not %s", is, first)
		}
		return ""
	})

	s.change(`spec: {reserveOrdinals: [1]}`)
	s.settled()
	s.happened("3 created", "3 ready", "1 goes", "1 gone")

	s.change(`spec: {replicas: 1}`)
	s.settled()
	s.happened("3 goes", "3 gone", "2 goes", "2 gone")
}

// TestStatefulSetRecreates: by default pods are replaced, the highest first, each when the one before is
// ready (ASTS-148 (part), ASTS-161 (part), ASTS-162 (part)).
func TestStatefulSetRecreates(t *testing.T) {
	t.Parallel()
	s := settle(t, "anew", "replicas: 2")
	s.image("nginx:1.27")
	s.settled()
	s.happened("1 goes", "1 gone", "1 created", "1 ready", "0 goes", "0 gone", "0 created", "0 ready")
}

const inPlaceTwo = "\npodManagementPolicy: Parallel\nupdateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}\n"

// TestStatefulSetInParallel: with maxUnavailable 2 two pods are updated at a time, as many as partition
// leaves, and none while the update is paused; a pod that is specified for deletion is made anew at the
// revision of its rank (ASTS-108 (part), ASTS-145 (part), ASTS-147 (part), ASTS-155 (part), ASTS-235 (part),
// ASTS-238 (part)).
func TestStatefulSetInParallel(t *testing.T) {
	t.Parallel()
	s := settle(t, "parallel", "replicas: 5"+inPlaceTwo)
	s.change(`spec: {updateStrategy: {rollingUpdate: {partition: 2}}}`)
	s.image("nginx:1.27")
	s.settled()
	if _, lowest := s.told(); lowest != 3 {
		t.Errorf("%d of 5 pods were ready at the least, not 3", lowest)
	}
	images := func(want ...string) {
		t.Helper()
		pods := s.pods()
		for i, image := range want {
			if pod := pods[fmt.Sprint("parallel-", i)]; pod.Spec.Containers[0].Image != "nginx:"+image {
				t.Errorf("pod %d has %s, not %s", i, pod.Spec.Containers[0].Image, image)
			}
		}
	}
	images("1.26", "1.26", "1.27", "1.27", "1.27")
	if is := s.get().Status; is.CurrentReplicas != 2 || is.UpdatedReplicas != 3 || is.CurrentRevision == is.UpdateRevision {
		t.Errorf("status %+v, want 2 pods at the current revision and 3 at the other", is)
	}

	s.change(`spec: {updateStrategy: {rollingUpdate: {paused: true, partition: 0}}}`)
	s.image("nginx:1.28")
	s.pass()
	images("1.26", "1.26", "1.27", "1.27", "1.27")
	before := s.pods()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"`+pub.SpecifiedDelete+`":""}}}`))
	for _, name := range []string{"parallel-0", "parallel-1", "parallel-4"} {
		pod := before[name]
		if err := kube.Patch(t.Context(), &pod, patch); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "three new pods", func(context.Context) string {
		replaced := 0
		for name, pod := range s.pods() {
			if pod.UID != before[name].UID && story.Ready(&pod) {
				replaced++
			}
		}
		if replaced != 3 {
			return fmt.Sprint(replaced)
		}
		return ""
	})
	if happened, lowest := s.told(); lowest != 3 {
		t.Errorf("%d of 5 pods were ready at the least, not 3: %v", lowest, happened)
	}
	images("1.28", "1.28", "1.27", "1.27", "1.28")

	s.change(`spec: {updateStrategy: {rollingUpdate: {paused: false}}}`)
	s.settled()
	images("1.28", "1.28", "1.28", "1.28", "1.28")
	for name, pod := range s.pods() {
		if kept := pod.UID == before[name].UID; kept != (name == "parallel-2" || name == "parallel-3") {
			t.Errorf("pod %s is the one before: %v", name, kept)
		}
	}
}

// TestStatefulSetIsScaledByItsSubresource: whoever knows only the scale subresource scales it
// (ASTS-011 (part), ASTS-135 (part)).
func TestStatefulSetIsScaledByItsSubresource(t *testing.T) {
	t.Parallel()
	s := settle(t, "scaled", "replicas: 1\npodManagementPolicy: Parallel")
	scale := &autoscalingv1.Scale{}
	for _, n := range []int32{4, 2} {
		if err := kube.SubResource("scale").Get(t.Context(), s.get(), scale); err != nil {
			t.Fatal(err)
		}
		if scale.Status.Selector != "app=scaled" || scale.Status.Replicas != scale.Spec.Replicas {
			t.Errorf("scale is %+v", scale)
		}
		scale.Spec.Replicas = n
		if err := kube.SubResource("scale").Update(t.Context(), s.get(), client.WithSubResourceBody(scale)); err != nil {
			t.Fatal(err)
		}
		s.settled()
	}
	if names := slices.Sorted(maps.Keys(s.pods())); !slices.Equal(names, []string{"scaled-0", "scaled-1"}) {
		t.Errorf("pods %v are left", names)
	}
}

// TestStatefulSetRecoversFromABrokenRevision: under OrderedReady a revision that cannot start stops at its
// first pod, and the corrected one replaces it; nobody deletes a pod by hand (ASTS-123 (part),
// ASTS-164 (part), ASTS-182 (part)).
func TestStatefulSetRecoversFromABrokenRevision(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"ReCreate", "InPlaceIfPossible"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			s := settle(t, "broken", "replicas: 3\nupdateStrategy: {rollingUpdate: {podUpdatePolicy: "+policy+"}}")
			s.image("nginx:does-not-exist")
			s.waiting("broken-2", "ImagePull")
			s.pass()
			for _, name := range []string{"broken-0", "broken-1"} {
				if pod := s.pods()[name]; pod.UID != s.seen[name].UID || pod.Spec.Containers[0].Image != "nginx:1.26" {
					t.Errorf("pod %s was taken while the first one does not start", name)
				}
			}
			s.image("nginx:1.27")
			s.settled()
			if happened, lowest := s.told(); lowest != 2 {
				t.Errorf("%d of 3 pods were ready at the least, not 2: %v", lowest, happened)
			}
			if policy != "ReCreate" {
				s.inPlace("nginx:1.27", 1)
			}
		})
	}
}

// TestStatefulSetThatNeverCameUpRecovers: the first pod of a new StatefulSet cannot start; a corrected
// template mends it (ASTS-121 (part)).
func TestStatefulSetThatNeverCameUpRecovers(t *testing.T) {
	t.Parallel()
	s := declare(t, "wrong", "replicas: 2"+inPlaceInOrder+
		"template: {spec: {containers: [{name: nginx, image: \"nginx:does-not-exist\", imagePullPolicy: IfNotPresent}]}}\n")
	s.waiting("wrong-0", "ImagePull")
	s.image("nginx:1.27")
	s.settled()
	if names := slices.Sorted(maps.Keys(s.pods())); !slices.Equal(names, []string{"wrong-0", "wrong-1"}) {
		t.Errorf("pods %v", names)
	}
}

// waiting waits until the container of a pod waits for a reason.
func (s *stateful) waiting(name, reason string) {
	s.t.Helper()
	eventually(s.t, "container of "+name+" waiting for "+reason, func(context.Context) string {
		pod := s.pods()[name]
		for _, status := range pod.Status.ContainerStatuses {
			if w := status.State.Waiting; w != nil && strings.Contains(w.Reason, reason) {
				return ""
			}
		}
		return fmt.Sprintf("%+v", pod.Status.ContainerStatuses)
	})
}

// TestStatefulSetManagerKilled: all managers are killed in the middle of a rollout; the rollout goes on where
// it stopped, no pod is touched twice, and no more pods are down than may be.
func TestStatefulSetManagerKilled(t *testing.T) {
	s := settle(t, "killed", "replicas: 6"+inPlaceTwo)
	s.image("nginx:1.27")
	eventually(t, "two updated pods", func(context.Context) string {
		if n := s.get().Status.UpdatedReadyReplicas; n < 2 {
			return fmt.Sprintf("%d updated", n)
		}
		return ""
	})
	killManagers(t)
	s.settled()
	s.inPlace("nginx:1.27", 1)
	if happened, lowest := s.told(); lowest < 4 {
		t.Errorf("%d of 6 pods were ready at the least, not 4: %v", lowest, happened)
	}
	managersBack(t)
}

// TestStatefulSetClaims: a pod that comes back has its claim. Claims stay when it is scaled in, unless the
// policy says Delete; then they go with pods that are no more wanted, and with the set (ASTS-096 (part),
// ASTS-103 (part), ASTS-261 (part), ASTS-263 (part), ASTS-264 (part)).
func TestStatefulSetClaims(t *testing.T) {
	t.Parallel()
	s := settle(t, "claims", `
replicas: 2
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
`+inPlaceInOrder+speaking("echo start >>/data/starts; wc -l </data/starts", ", volumeMounts: [{name: data, mountPath: /data}]"))
	ns := s.key.Namespace
	starts := func(pod, want string) {
		t.Helper()
		eventually(t, "the word of "+pod, func(context.Context) string { // it is ready before it has written
			if n := logs(t, ns, pod); n != want {
				return fmt.Sprintf("its claim saw %q starts, not %s", n, want)
			}
			return ""
		})
	}
	before := claimUIDs(t, ns)
	if names := slices.Sorted(maps.Keys(before)); !slices.Equal(names, []string{"data-claims-0", "data-claims-1"}) {
		t.Fatalf("claims %v", names)
	}
	s.image("app:v2")
	s.settled()
	s.inPlace("app:v2", 1)
	starts("claims-1", "2")

	deleted := func(name string) {
		t.Helper()
		pod := s.pods()[name]
		if err := kube.Delete(t.Context(), &pod); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the pod that comes back", func(context.Context) string {
			if now := s.pods()[name]; now.UID == pod.UID || !story.Ready(&now) {
				return now.Name + " is " + string(now.Status.Phase)
			}
			return ""
		})
	}
	deleted("claims-0")
	starts("claims-0", "3")

	s.change(`spec: {replicas: 1}`)
	s.settled()
	s.change(`spec: {replicas: 2}`)
	s.settled()
	starts("claims-1", "3")
	if after := claimUIDs(t, ns); !maps.Equal(before, after) {
		t.Errorf("claims %v became %v", before, after)
	}

	s.change(`spec: {persistentVolumeClaimRetentionPolicy: {whenScaled: Delete}}`)
	deleted("claims-0")
	starts("claims-0", "4")
	s.change(`spec: {replicas: 1}`)
	eventually(t, "the end of the claim", func(context.Context) string {
		if _, kept := claimUIDs(t, ns)["data-claims-1"]; kept {
			return "it is there"
		}
		return ""
	})
	s.change(`spec: {replicas: 2}`)
	s.settled()
	starts("claims-1", "1")
	if after := claimUIDs(t, ns); len(after) != 2 || after["data-claims-0"] != before["data-claims-0"] {
		t.Errorf("claims %v became %v", before, after)
	}

	held := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "data-claims-1"}}
	finalizers := func(list string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":`+list+`}}`))
		if err := kube.Patch(context.WithoutCancel(t.Context()), held, patch); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	}
	t.Cleanup(func() { finalizers("null") })
	finalizers(`["kubernetes.io/pvc-protection","afloat.dev/held"]`)
	second := held.UID
	s.change(`spec: {replicas: 1}`)
	eventually(t, "the end of the pod", func(ctx context.Context) string {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(held), held); err != nil || held.DeletionTimestamp == nil {
			return fmt.Sprint("its claim stays: ", err)
		}
		return ""
	})
	s.change(`spec: {replicas: 2}`)
	s.event("WaitingForClaims")
	if n := len(s.pods()); n != 1 {
		t.Errorf("%d pods while the claim goes", n)
	}
	finalizers("null")
	s.settled()
	starts("claims-1", "1")
	if after := claimUIDs(t, ns); after["data-claims-1"] == second {
		t.Error("the pod has the claim of the one that was scaled in")
	}

	s.change(`spec: {persistentVolumeClaimRetentionPolicy: {whenDeleted: Delete}}`)
	eventually(t, "the owner of claims", func(ctx context.Context) string {
		var list corev1.PersistentVolumeClaimList
		if err := kube.List(ctx, &list, client.InNamespace(ns)); err != nil {
			return err.Error()
		}
		for _, claim := range list.Items {
			if len(claim.OwnerReferences) != 1 || claim.OwnerReferences[0].UID != s.get().UID {
				return fmt.Sprintf("claim %s has %v", claim.Name, claim.OwnerReferences)
			}
		}
		return ""
	})
	if err := kube.Delete(t.Context(), s.get(), client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of all claims", func(context.Context) string {
		if left := claimUIDs(t, ns); len(left) > 0 {
			return fmt.Sprint(left)
		}
		return ""
	})
}
