//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/nodes"
)

// broadcast is a BroadcastJob under test.
type broadcast struct {
	t   *testing.T
	key client.ObjectKey
}

// broadcasting makes a job of pods that run a command of a shell, from the rest of its spec in v1beta1.
func broadcasting(t *testing.T, command, spec string) *broadcast {
	t.Helper()
	job := &appsv1beta1.BroadcastJob{}
	merged := merge(t, `
metadata: {name: check, namespace: `+namespace(t)+`}
spec:
  template:
    metadata: {labels: {app: check}}
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "app:v1", imagePullPolicy: IfNotPresent, command: [sh, -c, "`+command+`"]}
`, "spec:\n"+indent(spec))
	if err := yaml.Unmarshal(merged, job); err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	return &broadcast{t, client.ObjectKeyFromObject(job)}
}

func (b *broadcast) get() *appsv1beta1.BroadcastJob {
	b.t.Helper()
	job := &appsv1beta1.BroadcastJob{}
	if err := kube.Get(b.t.Context(), b.key, job); err != nil {
		b.t.Fatal(err)
	}
	return job
}

// is waits until the status has that phase and those numbers: active, succeeded, failed, desired.
func (b *broadcast) is(phase appsv1beta1.BroadcastJobPhase, numbers string) {
	b.t.Helper()
	eventually(b.t, "the BroadcastJob", func(context.Context) string {
		is := b.get().Status
		if got := fmt.Sprint(is.Active, " ", is.Succeeded, " ", is.Failed, " ", is.Desired); is.Phase != phase || got != numbers {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
}

// pods are its pods by node.
func (b *broadcast) pods() map[string][]corev1.Pod {
	b.t.Helper()
	var list corev1.PodList
	if err := kube.List(b.t.Context(), &list, client.InNamespace(b.key.Namespace), client.MatchingLabels{"broadcastjob-name": b.key.Name}); err != nil {
		b.t.Fatal(err)
	}
	pods := map[string][]corev1.Pod{}
	for _, pod := range list.Items {
		pods[nodes.Target(&pod)] = append(pods[nodes.Target(&pod)], pod)
	}
	return pods
}

func (b *broadcast) patch(body string) {
	b.t.Helper()
	job := &appsv1beta1.BroadcastJob{ObjectMeta: metav1.ObjectMeta{Namespace: b.key.Namespace, Name: b.key.Name}}
	if err := kube.Patch(b.t.Context(), job, client.RawPatch(types.MergePatchType, []byte(body))); err != nil {
		b.t.Fatal(err)
	}
}

// TestBroadcastJobCompletes: each node gets one pod, which the scheduler binds, one after the other; the job
// completes, and goes with its pods when its time is over (BJ-001 (part), BJ-041 (part), BJ-070 (part),
// BJ-110 (part), BJ-112 (part), BJ-120 (part)).
func TestBroadcastJobCompletes(t *testing.T) {
	t.Parallel()
	b := broadcasting(t, "sleep 1", "parallelism: 1\ncompletionPolicy: {ttlSecondsAfterFinished: 5}")
	most := 0
	eventually(t, "the BroadcastJob", func(context.Context) string {
		is := b.get().Status
		active := 0
		for node, pods := range b.pods() {
			if len(pods) != 1 {
				t.Fatalf("%d pods on node %s", len(pods), node)
			}
			if phase := pods[0].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
				active++
			}
		}
		if most = max(most, active); is.Phase != appsv1beta1.BroadcastJobCompleted {
			return fmt.Sprintf("%+v", is)
		}
		return ""
	})
	if most > 1 {
		t.Errorf("%d pods at a time", most)
	}
	b.is(appsv1beta1.BroadcastJobCompleted, fmt.Sprint("0 ", realNodes, " 0 ", realNodes))
	eventually(t, "the end of its time", func(ctx context.Context) string {
		if err := kube.Get(ctx, b.key, &appsv1beta1.BroadcastJob{}); err == nil || len(b.pods()) > 0 {
			return fmt.Sprintf("%v, %d pods", err, len(b.pods()))
		}
		return ""
	})
}

// TestBroadcastJobFails: one failed pod ends the job and the pods that run (BJ-090 (part), BJ-100 (part)).
func TestBroadcastJobFails(t *testing.T) {
	t.Parallel()
	b := broadcasting(t, "until [ -e /tmp/go ]; do sleep 0.2; done; exit 3", "completionPolicy: {activeDeadlineSeconds: 300}")
	b.is(appsv1beta1.BroadcastJobRunning, fmt.Sprint(realNodes, " 0 0 ", realNodes))
	for _, pods := range b.pods() {
		b.end(pods[0].Name)
		break
	}
	b.is(appsv1beta1.BroadcastJobFailed, fmt.Sprint("0 0 ", realNodes, " ", realNodes))
	eventually(t, "the end of the others", func(context.Context) string {
		if n := len(b.pods()); n != 1 {
			return fmt.Sprint(n, " nodes with a pod")
		}
		return ""
	})
}

// end ends the container of a pod that waits for a file.
func (b *broadcast) end(pod string) {
	b.t.Helper()
	eventually(b.t, "a command in "+pod, func(context.Context) string {
		if out, err := exec.CommandContext(b.t.Context(), os.Getenv("KUBECTL"), "exec", "-n", b.key.Namespace, pod, "--", "touch",
			"/tmp/go").CombinedOutput(); err != nil {
			return string(out) + err.Error()
		}
		return ""
	})
}

// TestBroadcastJobPauses: a failed pod pauses the job until its user has paused it and let it go on; then the
// other nodes are served, and a cordoned one when that is over (BJ-080 (part), BJ-092 (part), BJ-094 (part),
// BJ-131 (part)).
func TestBroadcastJobPauses(t *testing.T) {
	t.Parallel()
	b := broadcasting(t, "exit 3", "parallelism: 1\nfailurePolicy: {type: Pause}")
	for failed := 1; failed < realNodes; failed++ {
		b.is(appsv1beta1.BroadcastJobPaused, fmt.Sprint("0 0 ", failed, " ", realNodes))
		b.patch(`{"spec":{"paused":true}}`)
		b.patch(`{"spec":{"paused":false}}`) // the controller may not have seen it paused
	}
	b.is(appsv1beta1.BroadcastJobPaused, fmt.Sprint("0 0 ", realNodes, " ", realNodes))
	b.patch(`{"spec":{"failurePolicy":{"type":"Continue"}}}`)
	b.is(appsv1beta1.BroadcastJobCompleted, fmt.Sprint("0 0 ", realNodes, " ", realNodes))
}
