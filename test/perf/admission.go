package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindsOfPods are the pods whose admission is measured.
var kindsOfPods = []string{"pod of a CloneSet", "pod of others"}

// situation is a state of the cluster in which the admission of pods is measured. Kinds that change pods at
// admission add situations here.
type situation struct {
	name    string
	prepare func(context.Context, *bench) error
}

func situations() []situation {
	return []situation{{name: "no rules for pods", prepare: func(context.Context, *bench) error { return nil }}}
}

// admission measures dry-run creations, which go through all webhooks and store nothing: first without our
// webhooks, then with them.
func admission(ctx context.Context, b *bench) error {
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if err := b.sets.create(ctx, "web", 0, "100%"); err != nil {
		return err
	}
	set, err := b.sets.resource().Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return err
	}
	owner := metav1.NewControllerRef(set, schema.FromAPIVersionAndKind(set.GetAPIVersion(), set.GetKind()))
	if _, err := b.admit(ctx, owner, 200); err != nil { // warm up
		return err
	}
	for _, s := range situations() {
		if err := s.prepare(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		before, err := b.webhookCalls(ctx)
		if err != nil {
			return err
		}
		with, err := b.admit(ctx, owner, rounds())
		if err != nil {
			return err
		}
		after, err := b.webhookCalls(ctx)
		if err != nil {
			return err
		}
		restore, err := b.withoutWebhooks(ctx)
		if err != nil {
			return err
		}
		without, err := b.admit(ctx, owner, rounds())
		if err := restore(ctx); err != nil {
			return err
		}
		if err != nil {
			return err
		}
		b.report.figure(s.name+": webhook calls for pods", after-before, fmt.Sprintf("for %d pods", len(kindsOfPods)*rounds()))
		for _, kind := range kindsOfPods {
			for _, q := range []int{50, 99} {
				name := fmt.Sprintf("%s: %s, p%d", s.name, kind, q)
				a, z := millis(with[kind], q), millis(without[kind], q)
				b.report.figure(name+", with webhooks", a, "ms")
				b.report.figure(name+", without", z, "ms")
				b.report.figure(name+", added", a-z, "ms")
			}
		}
	}
	if b.report.Figures[0].Value == 0 {
		b.report.note("No webhook was called for any pod: what is added is noise.")
	}
	if err := withWorkloadSpreads(ctx, b); err != nil {
		return err
	}
	return withSidecarSets(ctx, b)
}

// rounds is how many pods of each kind are created; PERF_ROUNDS makes it less for a try.
func rounds() int {
	if n, err := strconv.Atoi(os.Getenv("PERF_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 1000
}

// admit creates pods of each kind in turn, by dry runs, and returns how long each took.
func (b *bench) admit(ctx context.Context, owner *metav1.OwnerReference, n int) (map[string][]time.Duration, error) {
	took := map[string][]time.Duration{}
	for i := range n {
		for _, kind := range kindsOfPods {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": "other"}},
				Spec: usualPodSpec(images[0])}
			namespace := others
			if kind == kindsOfPods[0] {
				namespace = ours
				pod.Labels = map[string]string{"app": "web", "apps.kruise.io/cloneset-instance-id": "abcde",
					"controller-revision-hash": "web-1"}
				pod.OwnerReferences = []metav1.OwnerReference{*owner}
				pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gates[0]}, {ConditionType: gates[1]}}
			}
			begin := time.Now()
			if _, err := b.kube.CoreV1().Pods(namespace).Create(ctx, pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
				return nil, fmt.Errorf("creating a %s: %w", kind, err)
			}
			took[kind] = append(took[kind], time.Since(begin))
		}
	}
	return took, nil
}

func millis(all []time.Duration, percentile int) float64 {
	all = slices.Sorted(slices.Values(all))
	return float64(all[(len(all)-1)*percentile/100].Microseconds()) / 1000
}

// webhookCalls returns how often the API server has called any webhook.
func (b *bench) webhookCalls(ctx context.Context) (float64, error) {
	body, err := b.kube.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return 0, fmt.Errorf("metrics of the API server: %w", err)
	}
	calls := 0.
	for line := range strings.Lines(string(body)) {
		if !strings.HasPrefix(line, "apiserver_admission_webhook_request_total{") {
			continue
		}
		var n float64
		if _, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &n); err != nil {
			return 0, fmt.Errorf("metrics of the API server: %w", err)
		}
		calls += n
	}
	return calls, nil
}

var webhookKinds = []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}

// withoutWebhooks removes all webhook configurations, and stops the manager, which would restore them, until
// the returned function is called.
func (b *bench) withoutWebhooks(ctx context.Context) (func(context.Context) error, error) {
	if err := b.manager.stop(ctx); err != nil {
		return nil, err
	}
	removed := map[string][]unstructured.Unstructured{}
	for _, kind := range webhookKinds {
		client := b.sets.client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: kind})
		list, err := client.List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		removed[kind] = list.Items
		for i := range list.Items {
			if err := client.Delete(ctx, list.Items[i].GetName(), metav1.DeleteOptions{}); err != nil {
				return nil, err
			}
		}
	}
	return func(ctx context.Context) error {
		for _, kind := range webhookKinds {
			client := b.sets.client.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1",
				Resource: kind})
			for i := range removed[kind] {
				object := &removed[kind][i]
				object.SetResourceVersion("")
				object.SetUID("")
				if _, err := client.Create(ctx, object, metav1.CreateOptions{}); err != nil {
					return err
				}
			}
		}
		return b.startManager(ctx)
	}, nil
}
