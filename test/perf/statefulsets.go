package main

import "context"

// parallelSets and orderedSets are StatefulSets under the two policies of pod management.
var (
	parallelSets = kind{"StatefulSet", "statefulsets", 90, func(_, unavailable string) map[string]any {
		return statefulSet("Parallel", unavailable)
	}}
	orderedSets = kind{"StatefulSet", "statefulsets", 90, func(_, _ string) map[string]any { return statefulSet("OrderedReady", 1) }}
)

func statefulSet(policy string, unavailable any) map[string]any {
	return map[string]any{"serviceName": "web", "podManagementPolicy": policy, "updateStrategy": map[string]any{"type": "RollingUpdate",
		"rollingUpdate": map[string]any{"podUpdatePolicy": "InPlaceOnly", "maxUnavailable": unavailable}}}
}

// statefulSets measures a large StatefulSet whose pods are moved together, and a small one whose pods are
// moved one by one.
func statefulSets(ctx context.Context, b *bench) error {
	var err error
	if b.sets, err = findSets(ctx, b.sets.client, parallelSets); err != nil {
		return err
	}
	if err := oneSet(ctx, b, 1000, 100); err != nil {
		return err
	}
	// The containers take a second to restart, so that the time of a pod is what its kubelet needs, and what
	// is lost between pods.
	const what, n, percent = "one by one: ", 50, 2
	b.sets.kind, b.sets.annotations = orderedSets, map[string]string{"afloat.dev/simulated-restart": "1s"}
	if err := ceilingOf(ctx, b, what, n, percent); err != nil {
		return err
	}
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return err
	}
	defer pods.close()
	names := []string{"ordered"}
	if err := createSets(ctx, b, pods, what+stepCreate, names, n); err != nil {
		return err
	}
	update := what + updateStep(percent)
	if err := updateSets(ctx, b, pods, update, b.report.Scenario+"-ordered", names, n, percent, images[1]); err != nil {
		return err
	}
	p, bare := b.report.find(update, false), b.report.find(update, true)
	b.report.figure("one by one, time of a pod", p.Seconds/n, "s")
	b.report.atMost("one by one, time of a pod to that of the bare client", p.Seconds/bare.Seconds, 1.1, "times")
	b.report.atMost("one by one, pod writes per pod", p.PodWrites, 3, "")
	return nil
}
