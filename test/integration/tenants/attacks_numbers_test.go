//go:build integration

package tenants

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// numberAttacks are about how many objects there are.
var numberAttacks = []attack{
	{name: "empty-sets", least: 2000, run: emptySets, does: "2,000 CloneSets without pods"},
	{name: "megabytes", least: 150, run: megabytes,
		does: "150 CloneSets of 1.3 MB without pods: nothing but what is stored"},
	{name: "claims", least: 4, run: claims,
		does: "CloneSets and StatefulSets with 1,000 claim templates, and 3 pods each"},
	{name: "restarts", least: 300, run: restarts,
		does: "500 ContainerRecreateRequests for 50 running pods, which no node answers"},
	{name: "probes", least: 200, run: probes,
		does: "200 PodProbeMarkers of 10 probes each, for 100 pods on 5 nodes"},
	{name: "schedules", least: 200, run: schedules,
		does: "200 AdvancedCronJobs that run each second, of jobs, BroadcastJobs and ImageListPullJobs"},
	{name: "pulls", least: 200, run: pulls,
		does: "150 ImagePullJobs and 50 ImageListPullJobs of 100 images for all nodes, with secrets that do not exist or are of others"},
	{name: "budgets", least: 500, run: budgets,
		does: "1,000 PodUnavailableBudgets over the same 50 pods, and evictions and deletions of these"},
	{name: "spreads", least: 200, run: spreads,
		does: "200 WorkloadSpreads and 200 PersistentPodStates, and 200 pods of what they name"},
	{name: "daemons", least: 60, run: daemons,
		does: "60 DaemonSets and 60 BroadcastJobs with pods on each node"},
	{name: "many-pods", least: 1, run: manyPods,
		does: "a CloneSet of 5,000 pods without nodes, while it is created, and then updated three times"},
}

func emptySets(ctx context.Context, m *tenant) error {
	each(ctx, 2000, 8, func(i int) { m.make(ctx, of("CloneSet", fmt.Sprintf("empty-%d", i))) })
	return nil
}

func megabytes(ctx context.Context, m *tenant) error {
	one := large(m.namespace, 1)
	each(ctx, 150, 4, func(i int) {
		o := one.DeepCopy()
		o.SetName(fmt.Sprintf("large-%d", i))
		for range 5 { // the manager has room for few large requests at once
			if m.make(ctx, o).GetUID() != "" {
				return
			}
		}
	})
	return nil
}

func claims(ctx context.Context, m *tenant) error {
	each(ctx, 6, 3, func(i int) {
		o := workload([]string{"CloneSet", "StatefulSet"}[i%2], m.namespace, fmt.Sprintf("claims-%d", i), 3)
		templates := make([]any, 1000)
		for j := range templates {
			templates[j] = object(fmt.Sprintf(`{metadata: {name: c%d}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}`, j)).Object
		}
		m.make(ctx, with(o, "spec.volumeClaimTemplates", templates))
	})
	return nil
}

// running makes pods that run on nodes.
func (m *tenant) running(ctx context.Context, n int, labels map[string]string) error {
	var failed error
	each(ctx, n, 8, func(i int) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: m.namespace, Name: fmt.Sprintf("running-%d", i), Labels: labels},
			Spec: corev1.PodSpec{NodeName: fmt.Sprintf("node-%d", i%nodes), ReadinessGates: []corev1.PodReadinessGate{{ConditionType: "KruisePodReady"}},
				Containers: []corev1.Container{{Name: "c", Image: "i:1"}}}}
		if err := m.Create(ctx, pod); err != nil {
			return // as many as it may
		}
		pod.Status.Phase = corev1.PodRunning
		set(pod, corev1.PodReady, corev1.ConditionTrue)
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Image: "i:1", ImageID: "x", ContainerID: fmt.Sprintf("containerd://%d", i), Ready: true,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
		if err := within(ctx, patience, func() error { // the manager writes the status, too
			current := &corev1.Pod{}
			if err := m.w.kube.Get(ctx, client.ObjectKeyFromObject(pod), current); err != nil {
				return err
			}
			conditions := current.Status.Conditions
			current.Status = *pod.Status.DeepCopy()
			current.Status.Conditions = append(current.Status.Conditions, conditions...)
			return m.w.kube.Status().Update(ctx, current)
		}); err != nil && ctx.Err() == nil {
			failed = err
		}
	})
	return failed
}

func restarts(ctx context.Context, m *tenant) error {
	if err := m.running(ctx, 50, map[string]string{"app": "restarted"}); err != nil {
		return err
	}
	each(ctx, 500, 8, func(i int) {
		o := of("ContainerRecreateRequest", fmt.Sprintf("restart-%d", i))
		with(o, "spec.strategy", map[string]any{"unreadyGracePeriodSeconds": int64(600), "minStartedSeconds": int64(600)})
		m.make(ctx, with(o, "spec.podName", fmt.Sprintf("running-%d", i%50)))
	})
	return nil
}

func probes(ctx context.Context, m *tenant) error {
	if err := m.running(ctx, 100, map[string]string{"app": "probed"}); err != nil {
		return err
	}
	each(ctx, 200, 8, func(i int) {
		list := make([]any, 10)
		for j := range list {
			list[j] = object(fmt.Sprintf(`{name: p%d, containerName: c, podConditionType: example.com/m%d-%d, probe: {periodSeconds: 1, exec: {command: ["true"]}},
				markerPolicy: [{state: Succeeded, labels: {m%d-%d: "yes"}}]}`, j, i, j, i, j)).Object
		}
		o := of("PodProbeMarker", fmt.Sprintf("marker-%d", i))
		with(o, "spec.selector", map[string]any{"matchLabels": map[string]any{"app": "probed"}})
		m.make(ctx, with(o, "spec.probes", list))
	})
	return nil
}

func schedules(ctx context.Context, m *tenant) error {
	templates := []string{`{jobTemplate: {spec: {template: ` + job + `}}}`, `{broadcastJobTemplate: {spec: {template: ` + job + `}}}`,
		`{imageListPullJobTemplate: {spec: {images: ["a:1", "b:1"], completionPolicy: {}}}}`}
	each(ctx, 200, 8, func(i int) {
		policy := []string{"Allow", "Replace", "Forbid"}[i/3%3]
		if i%3 == 2 && policy == "Allow" { // these may not run at once
			policy = "Forbid"
		}
		m.makes(ctx, `{apiVersion: apps.kruise.io/v1beta1, kind: AdvancedCronJob, metadata: {name: second-%d}, spec: {schedule: "@every 1s", concurrencyPolicy: %s,
			successfulJobsHistoryLimit: 1000, failedJobsHistoryLimit: 1000, template: %s}}`, i, policy, templates[i%3])
	})
	return m.lasts(ctx, 8)
}

// lasts waits until that many rollouts of the other tenant have ended: attacks that take their time to have
// an effect are measured for longer.
func (m *tenant) lasts(ctx context.Context, rollouts int) error {
	err := m.w.victim.next(ctx, rollouts)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the time of the attack is over
	}
	return err
}

func pulls(ctx context.Context, m *tenant) error {
	each(ctx, 200, 8, func(i int) {
		if i < 50 {
			images := make([]any, 100)
			for j := range images {
				images[j] = fmt.Sprintf("registry.example.com/%s/%d/%d:1", strings.Repeat("x", 100), i, j)
			}
			m.make(ctx, with(of("ImageListPullJob", fmt.Sprintf("list-%d", i)), "spec.images", images))
			return
		}
		o := of("ImagePullJob", fmt.Sprintf("pull-%d", i))
		with(o, "spec.image", fmt.Sprintf("registry.example.com/%s/%d:1", strings.Repeat("y", 100), i))
		m.make(ctx, with(o, "spec.pullSecrets", []any{"credentials", "none-" + strings.Repeat("z", 200)}))
	})
	return nil
}

func budgets(ctx context.Context, m *tenant) error {
	if err := m.running(ctx, 50, map[string]string{"app": "covered"}); err != nil {
		return err
	}
	each(ctx, 1000, 8, func(i int) {
		o := of("PodUnavailableBudget", fmt.Sprintf("budget-%d", i))
		// The key is another in each, so that admission cannot see that all of them cover the same pods.
		m.make(ctx, with(o, "spec.selector", map[string]any{"matchExpressions": []any{map[string]any{"key": fmt.Sprintf("not-%d", i), "operator": "DoesNotExist"}}}))
	})
	pods := m.pods(ctx)
	each(ctx, 4*len(pods), 8, func(i int) { _ = m.Delete(ctx, pods[i%len(pods)].DeepCopy()) })
	return nil
}

func spreads(ctx context.Context, m *tenant) error {
	each(ctx, 200, 8, func(i int) {
		name := fmt.Sprintf("spread-%d", i)
		m.make(ctx, of("WorkloadSpread", name))
		m.make(ctx, of("PersistentPodState", name))
		if i < 20 {
			m.make(ctx, workload("CloneSet", m.namespace, name, 10))
		}
	})
	if err := m.hasPods(ctx, 100); err != nil {
		return err
	}
	return nil
}

func daemons(ctx context.Context, m *tenant) error {
	each(ctx, 120, 8, func(i int) {
		m.make(ctx, of([]string{"DaemonSet", "BroadcastJob"}[i%2], fmt.Sprintf("daemon-%d", i)))
	})
	return m.hasPods(ctx, 60*nodes)
}

func manyPods(ctx context.Context, m *tenant) error {
	set := m.make(ctx, with(workload("CloneSet", m.namespace, "many", 5000), "spec.updateStrategy",
		map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"podUpdatePolicy": "ReCreate", "maxUnavailable": "100%"}}))
	if err := m.lasts(ctx, 10); err != nil {
		return err
	}
	for i := range 3 {
		_ = m.Patch(ctx, set.DeepCopy(), client.RawPatch(types.JSONPatchType,
			[]byte(fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"i:%d"}]`, i+2))))
		if err := m.lasts(ctx, 2); err != nil {
			return err
		}
	}
	return nil
}
