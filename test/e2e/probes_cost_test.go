//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
)

// TestAThousandProbes measures what 1,000 probes of ten seconds cost the node daemon: its CPU over two
// minutes, and its memory. `make perf-probes` runs it; it is no part of the tests, and nothing but that all
// probes have results is asserted.
func TestAThousandProbes(t *testing.T) {
	if os.Getenv("MEASURE") == "" {
		t.Skip("this measures, for five minutes: make perf-probes")
	}
	const pods, commands, requests, connections = 40, 2, 12, 11
	var daemons corev1.PodList
	if err := kube.List(t.Context(), &daemons, client.InNamespace("kruise-system"), client.MatchingLabels{"control-plane": "daemon"}); err != nil || len(daemons.Items) == 0 {
		t.Fatal(err, len(daemons.Items))
	}
	daemon := &daemons.Items[0]
	read := func() (cpu time.Duration, memory float64) {
		path := fmt.Sprintf("/api/v1/namespaces/kruise-system/pods/%s:10221/proxy/metrics", daemon.Name)
		out, err := exec.CommandContext(t.Context(), os.Getenv("KUBECTL"), "get", "--raw", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(out)) {
			name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
			value, _ := strconv.ParseFloat(text, 64)
			switch name {
			case "process_cpu_seconds_total":
				cpu = time.Duration(value * float64(time.Second))
			case "process_resident_memory_bytes":
				memory = value
			}
		}
		return cpu, memory
	}
	over := func(what string, pause time.Duration) {
		before, _ := read()
		begin := time.Now()
		<-time.After(pause)
		after, memory := read()
		t.Logf("%s: %.1f m CPU over %s, %.1f MiB", what, 1000*(after-before).Seconds()/time.Since(begin).Seconds(), pause, memory/(1<<20))
	}
	over("without probes", time.Minute)
	ns := namespace(t)
	for i := range pods {
		manifest(t, ns, fmt.Sprintf(`
metadata: {name: web-%d, labels: {app: web}}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
  - name: app
    image: app:v1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, "mkdir -p /tmp/www && echo yes >/tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www"]
`, i, daemon.Spec.NodeName), &corev1.Pod{})
	}
	var probes strings.Builder
	add := func(n int, kind, handler string) {
		for i := range n {
			fmt.Fprintf(&probes, "  - {name: %[1]s-%[2]d, containerName: app, podConditionType: example.com/%[1]s-%[2]d, probe: {%[3]s, periodSeconds: 10, timeoutSeconds: 5}}\n", kind, i, handler)
		}
	}
	add(commands, "command", `exec: {command: ["true"]}`)
	add(requests, "request", `httpGet: {path: /, port: 8080, scheme: HTTP}`)
	add(connections, "connection", `tcpSocket: {port: 8080}`)
	manifest(t, ns, "metadata: {name: web}\nspec:\n  selector: {matchLabels: {app: web}}\n  probes:\n"+probes.String(), &appsv1alpha1.PodProbeMarker{})
	eventually(t, "a thousand results", func(ctx context.Context) string {
		list := &appsv1alpha1.NodePodProbe{}
		if err := kube.Get(ctx, client.ObjectKey{Name: daemon.Spec.NodeName}, list); err != nil {
			return err.Error()
		}
		succeeded, others := 0, map[string]int{}
		for _, of := range list.Status.PodProbeStatuses {
			for i := range of.ProbeStates {
				if of.Namespace == ns && of.ProbeStates[i].State == appsv1alpha1.ProbeSucceeded {
					succeeded++
				} else {
					others[of.ProbeStates[i].Message]++
				}
			}
		}
		if succeeded != pods*(commands+requests+connections) {
			return fmt.Sprintf("%d, and %v", succeeded, others)
		}
		return ""
	})
	over("1,000 probes, once all have results", 2*time.Minute)
}
