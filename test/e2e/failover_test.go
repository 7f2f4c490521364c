//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const failoverReport = "# When the leader ends\n\nMade by `make failover`" + ` on %[1]s, in one sitting, on the local cluster with real kubelets and two managers with the shipped manifests.
A CloneSet of 20 pods is updated in place, one pod at a time, and in the middle of it the leader ends. What is measured, in the API server's
audit log, is the longest time between two writes of pods by the managers, three times each. Without an end it is as long as a pod takes.

| lease / renew deadline / retry | the leader ends because | least s | median s | most s |
|---|---|--:|--:|--:|
%[2]s
The shipped values are the first ones. A leader whose pod is deleted gives the lock back. One that is killed, or stands still, does not, and the lock has
to run out: up to the lease's duration and one retry. The new leader then looks first whether its caches show what is stored (OPS-028), which takes seconds on
a busy machine.

A shorter lease costs a write of the lease each second in place of one each two seconds, and it costs calm: a leader that cannot reach
the API server for the renew deadline ends and starts again, and three seconds are less than an API server takes to restart. It was seen in the sitting of 2026-11-28: a manager that had
just become the leader started its controllers on two busy cores, and lost the lease within five seconds. The other one was stopped next, kubelet backed off before it started the first one
again, and for 61 seconds nobody led. So the shipped values stay. No rollout is harmed by a leader that does not know yet that it is none, since its writes
are guarded by the versions of the objects ([decision 5](../decisions/0005-three-writes.md)); the values are a choice of calm, not of safety.
`

// lease is how long the leader's lock holds, how long it tries to renew it, and how often.
type lease struct{ duration, deadline, retry string }

// TestFailover measures how long rollouts pause when the leader ends in the middle of one: from its last write
// of pods to the first one of another leader. `make failover` runs it and keeps the report; it is no part of the
// tests, and nothing but that the rollouts end in place is asserted.
func TestFailover(t *testing.T) {
	report := os.Getenv("FAILOVER_REPORT")
	if report == "" {
		t.Skip("this measures, for a quarter of an hour: make failover")
	}
	const rounds = 3
	var rows strings.Builder
	settings := []lease{{"15s", "10s", "2s"}, {"5s", "3s", "1s"}}
	defer electWith(t, settings[0])
	for _, l := range settings {
		electWith(t, l)
		for _, way := range []struct {
			name string
			end  func(t *testing.T, leader *corev1.Pod) (undo func())
		}{
			{"its pod is deleted", deleteLeader},
			{"its process is killed", func(t *testing.T, leader *corev1.Pod) func() { return signalLeader(t, leader, syscall.SIGKILL) }},
			{"its process stands still", func(t *testing.T, leader *corev1.Pod) func() { return signalLeader(t, leader, syscall.SIGSTOP) }},
		} {
			var pauses []time.Duration
			for range rounds {
				// A kubelet makes a container wait that it started before with the same image, so each rollout is the
				// first one of new pods.
				w := create(t, "failover", `
replicas: 20
updateStrategy: {type: RollingUpdate, rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxUnavailable: 1}}
`)
				begin := time.Now()
				w.image("nginx:1.27")
				eventually(t, "the first pods of the rollout", func(context.Context) string {
					if n := len(writesOfManagers(t, w.key.Namespace, begin)); n < 6 {
						return fmt.Sprintf("%d writes", n)
					}
					return ""
				})
				before := holder(t)
				end := time.Now()
				undo := way.end(t, leaderPod(t, before))
				eventually(t, "another leader that goes on", func(context.Context) string {
					if now := holder(t); now == before {
						return "the lock is held by " + now
					}
					times := writesOfManagers(t, w.key.Namespace, end)
					if len(times) < 6 {
						return fmt.Sprintf("%d writes", len(times))
					}
					return ""
				})
				pauses = append(pauses, longestPause(writesOfManagers(t, w.key.Namespace, begin), end))
				undo()
				w.settled()
				w.inPlace("nginx:1.27", 1)
				managersBack(t)
				if err := kube.Delete(t.Context(), w.object); err != nil {
					t.Fatal(err)
				}
			}
			slices.Sort(pauses)
			row := fmt.Sprintf("| %s / %s / %s | %s | %.1f | %.1f | %.1f |\n", l.duration, l.deadline, l.retry, way.name,
				pauses[0].Seconds(), pauses[rounds/2].Seconds(), pauses[rounds-1].Seconds())
			t.Log(row)
			rows.WriteString(row)
		}
	}
	text := fmt.Sprintf(failoverReport, time.Now().Format(time.DateOnly), rows.String())
	if err := os.WriteFile(report, []byte(text), 0o644); err != nil { //nolint:gosec // a report for everybody
		t.Fatal(err)
	}
}

// longestPause returns the longest time between two writes that follow each other, the second of which is after
// the end of the leader.
func longestPause(writes []time.Time, end time.Time) (longest time.Duration) {
	for i := 1; i < len(writes); i++ {
		if writes[i].After(end) {
			longest = max(longest, writes[i].Sub(writes[i-1]))
		}
	}
	return longest
}

// electWith starts managers whose leaders are elected with these times.
func electWith(t *testing.T, l lease) {
	t.Helper()
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: "kruise-system", Name: "kruise-controller-manager"}
	if err := kube.Get(context.WithoutCancel(t.Context()), key, deployment); err != nil {
		t.Fatal(err)
	}
	base := deployment.DeepCopy()
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Args = slices.DeleteFunc(container.Args, func(arg string) bool { return strings.HasPrefix(arg, "--leader-election-") })
	container.Args = append(container.Args, "--leader-election-lease-duration="+l.duration,
		"--leader-election-renew-deadline="+l.deadline, "--leader-election-retry-period="+l.retry)
	if err := kube.Patch(context.WithoutCancel(t.Context()), deployment, client.StrategicMergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	managersBack(t)
}

// holder returns who holds the lock of the managers.
func holder(t *testing.T) string {
	t.Helper()
	lock := &coordinationv1.Lease{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "kruise-system", Name: "kruise-manager"}, lock); err != nil {
		t.Fatal(err)
	}
	if lock.Spec.HolderIdentity == nil {
		return ""
	}
	return *lock.Spec.HolderIdentity
}

// leaderPod returns the pod whose name the identity of the lock's holder begins with.
func leaderPod(t *testing.T, identity string) *corev1.Pod {
	t.Helper()
	name, _, _ := strings.Cut(identity, "_")
	pod := &corev1.Pod{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "kruise-system", Name: name}, pod); err != nil {
		t.Fatalf("the leader %s: %v", identity, err)
	}
	return pod
}

func deleteLeader(t *testing.T, leader *corev1.Pod) func() {
	t.Helper()
	if err := kube.Delete(t.Context(), leader); err != nil {
		t.Fatal(err)
	}
	return func() {}
}

// signalLeader sends a signal to the manager's process in the leader's pod, and returns what lets it go on.
func signalLeader(t *testing.T, leader *corev1.Pod, signal syscall.Signal) (undo func()) {
	t.Helper()
	pid := processOf(t, leader.UID)
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatal(err)
	}
	return func() {
		if signal == syscall.SIGSTOP {
			_ = syscall.Kill(pid, syscall.SIGCONT) // the kubelet may have ended it meanwhile
		}
	}
}

// processOf returns the id of the manager's process in a pod.
func processOf(t *testing.T, uid types.UID) int {
	t.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range groups {
		group, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(bytes.ReplaceAll(group, []byte("_"), []byte("-")), []byte(uid)) {
			continue
		}
		dir := filepath.Dir(path)
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		if err != nil || !bytes.HasPrefix(command, []byte("/manager")) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no process of the pod with UID %s", uid)
	return 0
}
