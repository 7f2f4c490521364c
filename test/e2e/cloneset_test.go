//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

const inPlaceIfPossible = `
replicas: 3
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`

// TestDemoStory plays the demo (IPU-001 (part), IPU-080 (part), IPU-210 (part)) and counts the writes that it
// takes: at most three for a pod.
func TestDemoStory(t *testing.T) {
	t.Parallel()
	var updated time.Time
	s := story.Story{Client: kube, Limit: 10 * time.Minute, Show: func(frame story.Frame) {
		if updated.IsZero() && strings.HasPrefix(frame.Title, "replicas") {
			updated = time.Now().Add(-frame.Elapsed)
		}
	}}
	pods, err := s.Play(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(pods) != 4 {
		t.Errorf("%d pods at the end, not 4", len(pods))
	}
	writes := podWrites(t, updated)
	for _, pod := range pods {
		if pod.Recreated {
			t.Errorf("pod was not updated in place: %+v", pod)
		}
		if pod.ImageBefore != "nginx:perl" || pod.ImageAfter != "nginx:latest" || pod.RestartsAfter != pod.RestartsBefore+1 {
			t.Errorf("pod %+v", pod)
		}
		if len(writes[pod.Name]) == 0 {
			t.Errorf("pod %s took no writes", pod.Name)
		}
		tookAtMost(t, 3, pod.Name, updated)
		t.Logf("pod %s: not ready for %.1f s, writes %v", pod.Name, pod.NotReady.Seconds(), writes[pod.Name])
	}
	if err := s.Clean(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestPartition: as many pods stay old as the partition says (CS-090 (part), CS-221 (part), CS-270 (part)).
func TestPartition(t *testing.T) {
	t.Parallel()
	w := create(t, "partition", `
replicas: 4
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, partition: 3, maxUnavailable: 2}}
`)
	w.image("nginx:1.27")
	w.settled()
	if s := w.get().Status; s.UpdatedReplicas != 1 || s.ExpectedUpdatedReplicas != 1 || s.CurrentRevision == s.UpdateRevision {
		t.Errorf("status %+v, want 1 updated and 1 expected", s)
	}
	w.change(`spec: {updateStrategy: {rollingUpdate: {partition: 0}}}`)
	w.settled()
	w.inPlace("nginx:1.27", 1)
	if s := w.get().Status; s.UpdatedReplicas != 4 || s.CurrentRevision != s.UpdateRevision {
		t.Errorf("status %+v, want 4 updated", s)
	}
}

// TestRecreateFallback: a change that cannot be applied in place replaces the pods (CS-127 (part),
// IPU-213 (part)).
func TestRecreateFallback(t *testing.T) {
	t.Parallel()
	w := create(t, "fallback", inPlaceIfPossible)
	w.change(`spec: {template: {spec: {containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, env: [{name: A, value: b}]}]}}}`)
	w.settled()
	for name := range w.pods() {
		if _, ok := w.seen[name]; ok {
			t.Errorf("pod %s was not replaced", name)
		}
	}
}

// TestInPlaceOnlyRefuses: the webhook refuses a change that does not qualify (CS-033 (part)). If the webhook
// is missing, the pods stay as they are, and the condition says why (IPU-173 (part), CS-225 (part)).
func TestInPlaceOnlyRefuses(t *testing.T) {
	t.Parallel()
	w := create(t, "only", strings.ReplaceAll(inPlaceIfPossible, "InPlaceIfPossible", "InPlaceOnly"))
	env := `spec: {template: {spec: {containers: [{name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, env: [{name: A, value: b}]}]}}}`
	if err := w.patch(env); !apierrors.IsInvalid(err) {
		t.Errorf("a change of env under InPlaceOnly answers %v, not Invalid", err)
	}
	w.change(`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, paused: true}}}`)
	w.change(env)
	w.change(`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceOnly, paused: false}}}`)
	eventually(t, "condition FailedUpdate", func(context.Context) string {
		set := w.get()
		for _, c := range set.Status.Conditions {
			if c.Type == appsv1beta1.CloneSetConditionFailedUpdate && c.Status == corev1.ConditionTrue &&
				strings.Contains(c.Message, "env") {
				return ""
			}
		}
		return fmt.Sprintf("%+v", set.Status.Conditions)
	})
	w.inPlace("nginx:1.26", 0)
	w.change(`spec: {updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible}}}`)
	w.settled()
	if conditions := w.get().Status.Conditions; len(conditions) > 0 {
		t.Errorf("conditions %+v are left", conditions)
	}
}

// TestGracePeriod: the pod is not ready first, its image changes when the grace period is over
// (IPU-106 (part), IPU-107 (part), IPU-210 (part)).
func TestGracePeriod(t *testing.T) {
	t.Parallel()
	const grace = 5 * time.Second
	w := create(t, "grace", `
replicas: 1
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1, inPlaceUpdateStrategy: {gracePeriodSeconds: 5}}}
`)
	events := watchPods(t, w.key.Namespace)
	w.image("nginx:1.27")
	var down, changed time.Time
	timeout := time.After(patience)
	for changed.IsZero() {
		select {
		case <-timeout:
			t.Fatal("the image was not changed")
		case event := <-events:
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("watch: %v", event)
			}
			if !story.Ready(pod) && down.IsZero() && pod.Labels[pub.LifecycleState] != string(pub.LifecycleStateNormal) ||
				conditionFalse(pod) && down.IsZero() {
				down = time.Now()
			}
			if pod.Spec.Containers[0].Image == "nginx:1.27" {
				changed = time.Now()
			}
		}
	}
	if down.IsZero() || changed.Sub(down) < grace-time.Second {
		t.Errorf("not ready at %v, image changed at %v: less than %v between", down, changed, grace)
	}
	w.settled()
	w.inPlace("nginx:1.27", 1)
	for _, pod := range w.pods() {
		if _, ok := pod.Annotations[pub.InPlaceUpdateGrace]; ok {
			t.Error("the grace annotation is left")
		}
	}
}

func conditionFalse(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == pub.InPlaceUpdateReady {
			return c.Status == corev1.ConditionFalse
		}
	}
	return false
}

func watchPods(t *testing.T, namespace string) <-chan watch.Event {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		t.Fatal(err)
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w, err := clients.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	events := make(chan watch.Event, 10000) // unread events wait here, not in the connection
	go func() {
		for event := range w.ResultChan() {
			events <- event
		}
	}()
	return events
}

// TestSameDigest: a new tag of the digest that runs already is a complete update too (IPU-300 (part)).
func TestSameDigest(t *testing.T) {
	t.Parallel()
	w := create(t, "digest", inPlaceIfPossible)
	w.image("nginx:1.27")
	w.settled()
	w.image("nginx:1.27-same")
	w.settled()
	w.inPlace("nginx:1.27-same", 2)
}

// TestClaims: PVCs stay with an update in place, and are replaced with their pod when the pod is recreated
// (CS-045 (part), CS-061 (part), CS-062 (part), IPU-215 (part)).
func TestClaims(t *testing.T) {
	t.Parallel()
	w := create(t, "claims", `
replicas: 2
template:
  spec:
    containers:
    - {name: nginx, image: "nginx:1.26", imagePullPolicy: IfNotPresent, volumeMounts: [{name: data, mountPath: /data}]}
volumeClaimTemplates:
- metadata: {name: data}
  spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Mi}}}
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1}}
`)
	before := claimUIDs(t, w.key.Namespace)
	if len(before) != 2 {
		t.Fatalf("%d claims, not 2", len(before))
	}
	w.image("nginx:1.27")
	w.settled()
	w.inPlace("nginx:1.27", 1)
	for name, uid := range claimUIDs(t, w.key.Namespace) {
		if before[name] != uid {
			t.Errorf("claim %s was replaced by an update in place", name)
		}
	}
	w.change(`spec: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 20Mi}}}}]}`)
	w.image("nginx:1.28")
	w.settled()
	eventually(t, "new claims", func(context.Context) string {
		after := claimUIDs(t, w.key.Namespace)
		for name := range before {
			if _, ok := after[name]; ok {
				return "claim " + name + " is still there"
			}
		}
		if len(after) != 2 {
			return fmt.Sprintf("%d claims", len(after))
		}
		return ""
	})
	var list corev1.PersistentVolumeClaimList
	if err := kube.List(t.Context(), &list, client.InNamespace(w.key.Namespace)); err != nil {
		t.Fatal(err)
	}
	for _, claim := range list.Items {
		if size := claim.Spec.Resources.Requests.Storage().String(); size != "20Mi" {
			t.Errorf("claim %s requests %s, not 20Mi", claim.Name, size)
		}
	}
}

func claimUIDs(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	var list corev1.PersistentVolumeClaimList
	if err := kube.List(t.Context(), &list, client.InNamespace(namespace)); err != nil {
		t.Fatal(err)
	}
	uids := map[string]types.UID{}
	for _, claim := range list.Items {
		uids[claim.Name] = claim.UID
	}
	return uids
}

// TestManagerKilled: all managers are killed in the middle of a rollout; the rollout goes on where it
// stopped, no pod is touched twice, and no more pods are down than may be (IPU-003 (part)).
func TestManagerKilled(t *testing.T) {
	w := create(t, "killed", `
replicas: 6
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}
`)
	events := watchPods(t, w.key.Namespace)
	w.image("nginx:1.27")
	eventually(t, "two updated pods", func(context.Context) string {
		if n := w.get().Status.UpdatedReadyReplicas; n < 2 {
			return fmt.Sprintf("%d updated", n)
		}
		return ""
	})
	killManagers(t)
	w.settled()
	w.inPlace("nginx:1.27", 1)
	notBelow(t, events, 6, 4)
	managersBack(t)
}

func killManagers(t *testing.T) {
	t.Helper()
	var managers corev1.PodList
	if err := kube.List(t.Context(), &managers, client.InNamespace("kruise-system"),
		client.MatchingLabels{"control-plane": "controller-manager"}); err != nil {
		t.Fatal(err)
	}
	for i := range managers.Items {
		if err := kube.Delete(t.Context(), &managers.Items[i], client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
	}
}

// managersBack waits until the managers that replace the killed ones serve, since the next test needs their
// webhooks.
func managersBack(t *testing.T) {
	t.Helper()
	eventually(t, "managers", func(ctx context.Context) string {
		deployment := &appsv1.Deployment{}
		if err := kube.Get(ctx, client.ObjectKey{Namespace: "kruise-system", Name: "kruise-controller-manager"}, deployment); err != nil {
			return err.Error()
		}
		if s := deployment.Status; s.ObservedGeneration != deployment.Generation || s.AvailableReplicas != *deployment.Spec.Replicas ||
			s.Replicas != s.AvailableReplicas {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

// TestManagerKilledInGrace: all managers are killed while a grace period runs; the next one waits for its end
// and goes on (IPU-003 (part), IPU-106 (part), IPU-107 (part)).
func TestManagerKilledInGrace(t *testing.T) {
	w := create(t, "killed-grace", `
replicas: 1
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1, inPlaceUpdateStrategy: {gracePeriodSeconds: 8}}}
`)
	w.image("nginx:1.27")
	eventually(t, "the grace period", func(context.Context) string {
		for _, pod := range w.pods() {
			if pod.Annotations[pub.InPlaceUpdateGrace] == "" {
				return "no annotation"
			}
		}
		return ""
	})
	killManagers(t)
	w.settled()
	w.inPlace("nginx:1.27", 1)
	managersBack(t)
}

// notBelow checks in all events that, once all pods were ready, at least minimum pods were ready at any time.
func notBelow(t *testing.T, events <-chan watch.Event, all, minimum int) {
	t.Helper()
	ready, complete := map[string]bool{}, false
	for {
		select {
		case event := <-events:
			pod, ok := event.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("watch: %v", event)
			}
			ready[pod.Name] = story.Ready(pod) && pod.DeletionTimestamp == nil
			count := 0
			for _, yes := range ready {
				if yes {
					count++
				}
			}
			complete = complete || count == all
			if complete && count < minimum {
				t.Errorf("%d of %d pods were ready, at least %d should have been", count, all, minimum)
			}
		default:
			if !complete {
				t.Error("the watch never saw all pods ready")
			}
			return
		}
	}
}
