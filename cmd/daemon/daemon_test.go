package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/afloat-project/afloat/internal/node/metadata"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// ND-013, ND-020, ND-022, OPS-025: defaults of the reference, but for profiles, which are off and on
// loopback; the documented alias; the node is mandatory.
func TestOptions(t *testing.T) {
	t.Setenv("NODE_NAME", "node-a")
	o, err := parseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, option := range map[string]struct{ got, want any }{"node": {o.node, "node-a"},
		"address":   {o.addr, ":10221"},
		"profiling": {o.pprof, false}, "address of profiling": {o.pprofAddr, "localhost:10222"},
		"plugin configuration": {o.pluginConfig, "/kruise/CredentialProviderPlugin.yaml"},
		"plugin directory":     {o.pluginDir, "/kruise/plugins"}} {
		if option.got != option.want {
			t.Errorf("%s by default: got %v, want %v", name, option.got, option.want)
		}
	}
	if o.pullWorkers != 5 {
		t.Errorf("pulls at once by default: got %d, want 5", o.pullWorkers)
	}
	if o.qps != 0 {
		t.Errorf("requests per second by default: got %v, want 0", o.qps)
	}
	if o.burst != 0 {
		t.Errorf("burst of requests by default: got %v, want 0", o.burst)
	}
	o, err = parseOptions([]string{"--max-concurrency=3", "--socket-file=my.sock", "--v=4", "--logtostderr=true",
		"--feature-gates=AllAlpha=true", "--rest-config-qps=5.5"})
	if err != nil {
		t.Errorf("parsing flags: %v", err)
	} else if o.pullWorkers != 3 {
		t.Errorf("pulls at once: got %d, want 3", o.pullWorkers)
	} else if o.socketFile != "my.sock" {
		t.Errorf("socket: got %s, want my.sock", o.socketFile)
	} else if o.qps != 5.5 {
		t.Errorf("requests per second: got %v, want 5.5", o.qps)
	}
	if o, err = parseOptions([]string{"--max-workers-for-pull-image=4"}); err != nil {
		t.Errorf("parsing the older flag: %v", err)
	} else if o.pullWorkers != 4 {
		t.Errorf("pulls at once by the older flag: got %d, want 4", o.pullWorkers)
	}
	if _, err := parseOptions([]string{"extra"}); err == nil {
		t.Error("an argument is taken")
	}
	t.Setenv("NODE_NAME", "")
	if _, err := parseOptions(nil); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Errorf("without a node: got %v, want an error about NODE_NAME", err)
	}
}

// ND-045, ND-046, OPS-091: the first failing check is named; liveness waits for a while, readiness does not,
// and needs a runtime.
func TestHealth(t *testing.T) {
	now := time.Unix(0, 0)
	synced, usable := errors.New("not synced"), errors.New("no usable container runtime: unix:///a: no such file")
	h := &health{started: now, now: func() time.Time { return now },
		informers: []check{{"nodeImageInformerSynced", func(context.Context) error { return nil }},
			{"crrInformerSynced", func(context.Context) error { return synced }}},
		runtime: check{"containerRuntime", func(context.Context) error { return usable }}}
	expect := func(path string, code int, text string) {
		t.Helper()
		recorder := httptest.NewRecorder()
		h.handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if recorder.Code != code {
			t.Errorf("%s: got code %d, want %d: %s", path, recorder.Code, code, recorder.Body)
		}
		if !strings.Contains(recorder.Body.String(), text) {
			t.Errorf("%s: got %q, want %q in it", path, recorder.Body, text)
		}
	}
	expect("/healthz", 200, "ok")
	expect("/readyz", 500, "containerRuntime: no usable container runtime: unix:///a: no such file")
	usable = nil
	expect("/readyz", 500, "crrInformerSynced: not synced")
	now = now.Add(time.Hour)
	expect("/healthz", 500, "crrInformerSynced: not synced") // it names the check
	synced, usable = nil, errors.New("gone for a moment")
	expect("/healthz", 200, "ok")
	expect("/readyz", 500, "gone for a moment")
	usable = nil
	expect("/readyz", 200, "ok")
	expect("/metrics", 200, "go_goroutines") // ND-047
}

// ND-049: without its listener the daemon ends; with it, it serves until its context ends.
func TestServe(t *testing.T) {
	taken, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	if err := serve(t.Context(), taken.Addr().String(), http.NotFoundHandler()); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := serve(ctx, "127.0.0.1:0", http.NotFoundHandler()); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("serving until the end: %v", err)
	}
}

// ND-055, CRR-090: watches are limited to the node.
func TestWatchesAreLimited(t *testing.T) {
	want := map[string]string{
		"*v1.Pod":                           "spec.nodeName=node-a",
		"*v1beta1.NodeImage":                "metadata.name=node-a",
		"*v1alpha1.NodePodProbe":            "metadata.name=node-a",
		"*v1beta1.ContainerRecreateRequest": "crr.apps.kruise.io/active=true,crr.apps.kruise.io/node-name=node-a",
	}
	for object, by := range cacheOptions("node-a").ByObject {
		got := ""
		if by.Field != nil {
			got = by.Field.String()
		}
		if by.Label != nil {
			got = by.Label.String()
		}
		kind := fmt.Sprintf("%T", object)
		if got != want[kind] {
			t.Errorf("the cache of %s: selected by %q, want %q", kind, got, want[kind])
		}
		if kind == "*v1.Pod" && by.Transform == nil {
			t.Errorf("the cache of %s: objects are not cut", kind)
		}
		delete(want, kind)
	}
	if len(want) > 0 {
		t.Errorf("not limited: %v", want)
	}
}

// ND-021, ND-060, OPS-022 (part): the user agent, and events by component with the node as host, as the API
// server gets them.
func TestEventsNameComponentAndNode(t *testing.T) {
	got := make(chan *http.Request, 1)
	body := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := make([]byte, r.ContentLength)
		_, _ = r.Body.Read(text)
		got <- r
		body <- string(text)
		w.WriteHeader(http.StatusCreated)
	}))
	defer server.Close()
	of, end, err := recorders(&rest.Config{Host: server.URL, UserAgent: userAgent,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, "node-a")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	of("kruise-daemon-crr").Event(&corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}, corev1.EventTypeNormal, "Killing", "x")
	r := <-got
	if agent := r.Header.Get("User-Agent"); agent != "kruise-daemon" {
		t.Errorf("user agent of an event: got %s, want kruise-daemon", agent)
	}
	if r.Method != http.MethodPost {
		t.Errorf("method of an event: got %s, want POST", r.Method)
	}
	text := <-body
	for _, part := range []string{`"component":"kruise-daemon-crr"`, `"host":"node-a"`} {
		if !strings.Contains(text, part) {
			t.Errorf("event: got %s, want %s in it", text, part)
		}
	}
}

// ND-049, ND-037, ND-004: a daemon without API server and runtime runs and serves until its context ends.
func TestRunsWithoutApiServerAndRuntime(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("NODE_NAME", "node-a")
	probe, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := probe.Addr().String()
	_ = probe.Close()
	kubeconfig := writeKubeconfig(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	o, err := parseOptions([]string{"--addr=" + address, "--kubeconfig=" + kubeconfig, "--socket-root=" + dir})
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- o.run(ctx) }()
	deadline := time.Now().Add(time.Minute)
	var text string
	for !strings.Contains(text, "containerd.sock: no such file") {
		if time.Now().After(deadline) {
			t.Fatalf("not told: %s", text)
		}
		select {
		case err := <-ended:
			t.Fatalf("it ended: %v", err)
		default:
		}
		text = get(t, "http://"+address+"/readyz")
	}
	if text := get(t, "http://"+address+"/healthz"); text != "ok" {
		t.Errorf("health: got %q, want ok", text)
	}
	text = get(t, "http://"+address+"/metrics")
	// ND-047, ND-048, OPS-210 (part). Restarts for the environment are stops of requester containermeta.
	for _, want := range []string{"go_build_info", "kruise_build_info{", "kruise_feature_enabled", `"runtime_container_meta_restarter"`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
	served := described(t)
	for name, labels := range map[string]string{"image_pull_duration_seconds": "result", "image_pull_bytes_total": "", "image_pulls_waiting": "",
		"image_pulls_running": "", "container_stops_total": "requester,result", "probe_attempts_total": "handler,outcome",
		"probe_attempts_waiting": "", "runtime_call_duration_seconds": "method,code", "metadata_reports_total": "result"} {
		if got, found := served["afloat_daemon_"+name]; !found {
			t.Errorf("there is no metric afloat_daemon_%s", name)
		} else if got != labels {
			t.Errorf("metric afloat_daemon_%s: got labels %q, want %q", name, got, labels)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the end of the daemon: %v", err)
	}
}

// described are the metrics that are registered, with their labels.
func described(t *testing.T) map[string]string {
	t.Helper()
	registry, ok := metrics.Registry.(prometheus.Collector)
	if !ok {
		t.Fatalf("the registry of the metrics is %T, which describes nothing", metrics.Registry)
	}
	descriptions := make(chan *prometheus.Desc)
	go func() { registry.Describe(descriptions); close(descriptions) }()
	found := map[string]string{}
	form := regexp.MustCompile(`fqName: "([^"]*)".*variableLabels: \{([^}]*)\}`)
	for description := range descriptions {
		if m := form.FindStringSubmatch(description.String()); m != nil {
			found[m[1]] = m[2]
		}
	}
	return found
}

// ND-004, ND-056, ND-181, ND-183: without DaemonWatchingPod the daemon does not wait for a watch of pods, and
// everything that does not need it works. Without KruiseDaemon nothing is watched, and no controller is
// added.
func TestWatchesFollowTheGates(t *testing.T) {
	for list, want := range map[string]string{
		"":                         "nodeImageInformerSynced crrInformerSynced nodePodProbeInformerSynced podInformerSynced",
		"DaemonWatchingPod=false":  "nodeImageInformerSynced crrInformerSynced nodePodProbeInformerSynced",
		"PodProbeMarkerGate=false": "nodeImageInformerSynced crrInformerSynced podInformerSynced",
		"KruiseDaemon=false":       "",
	} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, c := range informers(nil, gates) {
			names = append(names, c.name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("informers by the gates %q: got %s, want %s", list, got, want)
		}
		if want == "" {
			if err := addControllers(t.Context(), nil, nil, gates, nil, nil, nil); err != nil { // would panic on the missing manager
				t.Errorf("adding no controllers: %v", err)
			}
		}
	}
}

// ND-182: the gate, which is on by default, turns on hashes of the environment and the restarts that follow
// from them; TestPlan of package metadata shows both without it.
func TestReportsFollowTheGate(t *testing.T) {
	for list, want := range map[string]bool{"": true, "InPlaceUpdateEnvFromMetadata=false": false,
		"InPlaceUpdateEnvFromMetadata=true": true} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		if got := reporting(gates, metadata.Options{}).EnvFromMetadata; got != want {
			t.Errorf("environment from metadata by the gates %q: got %t, want %t", list, got, want)
		}
	}
}
