package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

var daemonSets = kind{"DaemonSet", "daemonsets", 90, func(_, unavailable string) map[string]any {
	return map[string]any{"updateStrategy": map[string]any{"type": "RollingUpdate",
		"rollingUpdate": map[string]any{"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": unavailable}}}
}}

// daemonSetOn5000 measures a DaemonSet of a large cluster, and what events of its nodes cost.
func daemonSetOn5000(ctx context.Context, b *bench) error {
	const n, percent = 5000, 10
	if err := ceilingAlone(ctx, b, n, percent); err != nil {
		return err
	}
	var err error
	if b.sets, err = findSets(ctx, b.sets.client, daemonSets); err != nil {
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
	names := []string{"agent"}
	if err := createWith(ctx, b, pods, stepCreate, names, n, fmt.Sprintf("%d%%", percent)); err != nil {
		return err
	}
	if err := measureUpdate(ctx, b, pods, names, n, percent, images[1]); err != nil {
		return err
	}
	judgeDaemons(b.report, percent)
	if _, err := b.memoryAtRest(ctx, "with 5,000 nodes and 5,000 pods"); err != nil {
		return err
	}
	return nodeEvents(ctx, b)
}

// judgeDaemons compares creation and update with the bare client and the targets.
func judgeDaemons(r *report, percent int) {
	made, bare := r.find(stepCreate, false), r.find(stepCreate, true)
	r.atLeast("creation, part of the bare client's speed", 100*made.PodsPerSecond/bare.PodsPerSecond, 95, "%")
	r.atMost("creation, pod writes per pod", made.PodWrites, 2.1, "")
	updated, bare := r.find(updateStep(percent), false), r.find(updateStep(percent), true)
	r.atLeast("update, part of the bare client's speed", 100*updated.PodsPerSecond/bare.PodsPerSecond, daemonSets.promised, "%")
	r.atMost("update, pod writes per pod", updated.PodWrites, 3, "")
	r.atMost("update, pods out of service", float64(updated.Budget.Most), float64(updated.Budget.Budget), "")
	r.figure("update, manager CPU per pod", updated.CPUPerPod, "ms")
	r.figure("update, time of a pod out of service to that of the bare client", updated.Budget.Down/bare.Budget.Down, "times")
}

// nodeEvents lets a thousand nodes report that they are ready still, and changes a label of theirs that the
// set does not look at.
func nodeEvents(ctx context.Context, b *bench) error {
	nodes, err := b.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var touched []string
	for i := 0; i < len(nodes.Items); i += 5 {
		touched = append(touched, nodes.Items[i].Name)
	}
	for _, event := range []struct {
		what, body  string
		kind        types.PatchType
		subresource []string
	}{
		{"heartbeat", `{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, types.StrategicMergePatchType, []string{"status"}},
		{"label", `{"metadata":{"labels":{"perf":"%.10s"}}}`, types.MergePatchType, nil},
	} {
		p, err := b.managerStep(ctx, "one "+event.what+" of every fifth node", len(touched),
			func(ctx context.Context) (begin, end time.Time, err error) {
				begin = time.Now()
				body := fmt.Appendf(nil, event.body, begin.UTC().Format(time.RFC3339))
				err = each(len(touched), func(i int) error {
					_, err := b.kube.CoreV1().Nodes().Patch(ctx, touched[i], event.kind, body, metav1.PatchOptions{}, event.subresource...)
					return err
				})
				return begin, time.Now(), err
			})
		if err != nil {
			return err
		}
		cpu := 1000 * p.CPU / float64(len(touched))
		if event.what == "heartbeat" {
			b.report.atMost("manager CPU for a heartbeat of a node", cpu, 1, "ms")
		} else { // its NodeImage gets the label, too, in a write for each
			b.report.figure("manager CPU for a label of a node, NodeImages included", cpu, "ms")
		}
		b.report.atMost("pod writes for a "+event.what+" of a node", p.PodWrites, 0, "")
		if p.Requests != nil {
			b.report.atMost("reconciles for a "+event.what+" of all these nodes", p.Reconciles, 0, "")
		}
	}
	return nil
}
