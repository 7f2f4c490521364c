package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/afloat-project/afloat/internal/kinds/cloneset"
	"github.com/afloat-project/afloat/test/perf/fastserver"
)

// fastDelay is the time after which the server of scenario fast answers, unless PERF_DELAY says otherwise.
const fastDelay = time.Millisecond

// servedWrites are writes as the server of scenario fast counts them.
type servedWrites struct {
	server *fastserver.Server
	before map[string]fastserver.Writes
}

func (s *servedWrites) read(counts *writes, agent string) error {
	if counts.done == nil {
		counts.done, counts.refused = map[string]int{}, map[string]int{}
	}
	now := s.server.Written()
	for name, w := range now {
		if !strings.HasPrefix(name+`"`, agent) { // as in an audit log
			continue
		}
		add := func(to, now, before map[string]int) {
			for key, n := range now {
				if n > before[key] {
					to[key] += n - before[key]
				}
			}
		}
		add(counts.done, w.Done, s.before[name].Done)
		add(counts.refused, w.Refused, s.before[name].Refused)
	}
	s.before = now
	return nil
}

// again begins the names of the steps of the bare client after the manager's.
const again = "again: "

// fast measures the manager on an API server that costs nothing. The bare client is measured before and after
// it, because other load on a shared machine matters more than with a slow server.
func fast(ctx context.Context, b *bench) (err error) {
	debug.SetGCPercent(400) // the server must not take time from the manager
	end, err := onFastServer(ctx, b, 25)
	if err != nil {
		return err
	}
	defer func() { err = end(err) }()
	const count, size = 100, 10
	if err := ceiling(ctx, b, count*size, 100); err != nil {
		return err
	}
	if err := b.startManager(ctx); err != nil {
		return err
	}
	pods, err := observe(ctx, b.kube, ours)
	if err != nil {
		return err
	}
	defer pods.close()
	parts := []struct {
		count, size int
		name        string
	}{{1, count * size, "web"}, {count, size, "many"}}
	for _, part := range parts {
		names := make([]string, part.count)
		for i := range names {
			names[i] = fmt.Sprintf("%s-%03d", part.name, i)
		}
		if err := fastPart(ctx, b, pods, names, part.size); err != nil {
			return err
		}
	}
	if err := b.manager.stop(ctx); err != nil {
		return err
	}
	if err := ceilingOf(ctx, b, again, count*size, 100); err != nil {
		return err
	}
	for _, part := range parts {
		if err := judgeFast(ctx, b, part.count, part.size); err != nil {
			return err
		}
	}
	return nil
}

// onFastServer starts the server with this number of nodes and prepares the manager. The returned function ends
// both, and adds its errors and what the manager said last to those of the scenario.
func onFastServer(ctx context.Context, b *bench, nodes int) (end func(error) error, err error) {
	dir, err := os.MkdirTemp("", "afloat-perf-")
	if err != nil {
		return nil, fmt.Errorf("folder for the manager: %w", err)
	}
	if err := serveFast(ctx, b, dir, nodes); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return func(err error) error {
		err = errors.Join(err, b.manager.stop(context.WithoutCancel(ctx)), b.server.Close())
		if err != nil {
			err = fmt.Errorf("%w; the manager's last words:\n%s", err, tail(b.manager.log))
		}
		b.report.note("The server, its kubelets and the bare client are one process, which shares the machine with the manager.")
		return errors.Join(err, os.RemoveAll(dir))
	}, nil
}

// fastSteps names the steps of sets of the same size, and the profiles of their update.
func fastSteps(b *bench, count, size int) (create, update, remove, profile string) {
	what := fmt.Sprintf("%d of %d: ", count, size)
	return what + stepCreate, what + updateStep(100), what + stepDelete, fmt.Sprintf("%s-%dx%d", b.report.Scenario, count, size)
}

// fastPart measures the life of sets of the same size.
func fastPart(ctx context.Context, b *bench, pods *observer, names []string, size int) error {
	create, update, remove, profile := fastSteps(b, len(names), size)
	if err := createSets(ctx, b, pods, create, names, size); err != nil {
		return err
	}
	if err := updateSets(ctx, b, pods, update, profile, names, len(names)*size, 100, images[1]); err != nil {
		return err
	}
	_, err := b.managerStep(ctx, remove, len(names)*size, func(ctx context.Context) (begin, end time.Time, err error) {
		gone := pods.expect("", func() bool { return len(pods.pods) == 0 })
		begin = time.Now()
		if err := each(len(names), func(i int) error { return b.sets.scale(ctx, names[i], 0) }); err != nil {
			return begin, end, err
		}
		end, err = pods.wait(ctx, "pods end", gone)
		return begin, end, err
	})
	return err
}

// judgeFast compares sets of the same size with the targets.
func judgeFast(ctx context.Context, b *bench, count, size int) error {
	create, update, _, profile := fastSteps(b, count, size)
	for _, step := range []struct {
		name, bare string
		writes     float64
	}{{create, stepCreate, 2}, {update, updateStep(100), 3}} {
		p, bare := b.report.find(step.name, false),
			(b.report.find(step.bare, true).PodsPerSecond+b.report.find(again+step.bare, true).PodsPerSecond)/2
		b.report.atLeast(step.name+", speed", p.PodsPerSecond, 400, "pods/s")
		b.report.figure(step.name+", part of the bare client", 100*p.PodsPerSecond/bare, "%")
		b.report.atMost(step.name+", pod writes per pod", p.PodWrites, step.writes, "")
		b.report.atMost(step.name+", manager CPU per pod", p.CPUPerPod, 1.5, "ms")
	}
	return b.reportShares(ctx, profile, update)
}

// serveFast starts the server, with nodes that run pods and with all objects that the manager needs, and prepares the manager.
func serveFast(ctx context.Context, b *bench, dir string, nodes int) error {
	kubelets := &fastserver.Kubelets{Nodes: nodes, Bind: time.Millisecond, Start: 5 * time.Millisecond, Restart: 5 * time.Millisecond,
		Ready: time.Millisecond, End: 2 * time.Millisecond}
	delay := fastDelay
	if text := os.Getenv("PERF_DELAY"); text != "" {
		var err error
		if delay, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("PERF_DELAY: %w", err)
		}
		b.report.note("The server answered after %s.", delay)
	}
	server, err := fastserver.Start(ctx, delay, kubelets)
	if err != nil {
		return err
	}
	b.server, b.agent = server, "kruise-manager"
	b.report.Machine.Kubernetes = fastserver.Version + " (simulated)"
	config := server.Config()
	config.QPS = -1
	config.UserAgent = harnessAgent
	if b.kube, err = typed(config, harnessAgent); err != nil {
		return err
	}
	if b.bare, err = typed(config, bareAgent); err != nil {
		return err
	}
	for _, name := range []string{ours, others, "kruise-system"} {
		if _, err := b.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	if err := install(ctx, config); err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	if b.sets, err = findSets(ctx, client, cloneSets); err != nil {
		return err
	}
	b.sets.complete = completeSet
	b.sets.spec = func(image string) corev1.PodSpec {
		spec := podSpec(image)
		fastserver.Complete(&spec)
		return spec
	}
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := server.WriteKubeconfig(kubeconfig); err != nil {
		return err
	}
	b.manager, err = fastManager(ctx, dir, kubeconfig)
	return err
}

// completeSet does what the webhooks do.
func completeSet(set map[string]any) ([]byte, error) {
	document, err := json.Marshal(set)
	if err != nil {
		return nil, err
	}
	plain := map[string]any{} // without Go types
	if err := json.Unmarshal(document, &plain); err != nil {
		return nil, err
	}
	operations, err := cloneset.Default(cloneset.DefaultRequest{Version: "v1beta1", New: plain})
	if err != nil || len(operations) == 0 {
		return document, err
	}
	encoded, err := json.Marshal(operations)
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.DecodePatch(encoded)
	if err != nil {
		return nil, err
	}
	return patch.Apply(document)
}

// install creates the objects of an installation that the manager needs: definitions and webhooks.
func install(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	files, err := filepath.Glob("config/crd/bases/*.yaml")
	if err != nil || len(files) == 0 {
		return errors.Join(err, errors.New("config/crd/bases has no definitions: run this where the repository is"))
	}
	for _, file := range append(files, "config/webhook/mutating.yaml", "config/webhook/validating.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		gvr := schema.GroupVersionResource{Version: "v1", Group: object.GroupVersionKind().Group,
			Resource: strings.ToLower(object.GetKind()) + "s"}
		if _, err := client.Resource(gvr).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

// fastManager is the manager as a child of this process, on ports of 127.0.0.1 that are free.
func fastManager(ctx context.Context, dir, kubeconfig string) (*manager, error) {
	binary := os.Getenv("PERF_BINARY")
	if binary == "" {
		binary = "bin/manager"
	}
	if _, err := os.Stat(binary); err != nil {
		return nil, fmt.Errorf("PERF_BINARY must be the manager: %w", err)
	}
	var ports [4]string
	for i := range ports {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		ports[i] = listener.Addr().String()
		defer func() { _ = listener.Close() }() // only after all ports are found, so that they differ
	}
	m := &manager{ready: "http://" + ports[0] + "/readyz", metric: "http://" + ports[1] + "/metrics", pprof: "http://" + ports[2], dir: dir,
		log: filepath.Join(dir, "manager.log")}
	if profiles := os.Getenv("PERF_PROFILES"); profiles != "" {
		if err := os.MkdirAll(profiles, 0o755); err != nil {
			return nil, err
		}
		m.log = filepath.Join(profiles, "fast.manager.log")
	}
	_, port, err := net.SplitHostPort(ports[3])
	if err != nil {
		return nil, err
	}
	m.command = []string{"env", "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_CERT_WRITER=fs",
		"WEBHOOK_CERT_DIR=" + filepath.Join(dir, "certificates"),
		"WEBHOOK_PORT=" + port, binary, "--kubeconfig=" + kubeconfig, "--health-probe-addr=" + ports[0],
		"--metrics-addr=" + ports[1], "--enable-pprof", "--pprof-addr=" + ports[2], "--shutdown-delay-duration=0s", "--v=4"}
	return m, nil
}

// tail returns the end of a file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}
