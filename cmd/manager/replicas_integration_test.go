//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
)

// installation is an API server with the shipped definitions and configurations, on which managers run as
// processes.
type installation struct {
	t          *testing.T
	kube       client.Client
	dir        string
	binary     string
	kubeconfig string
}

func install(t *testing.T) *installation {
	t.Helper()
	s, err := scheme()
	if err != nil {
		t.Fatal(err)
	}
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	environment := &envtest.Environment{}
	cfg, err := environment.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := environment.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	i := &installation{t: t, dir: t.TempDir()}
	if i.kube, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	i.binary, i.kubeconfig = filepath.Join(i.dir, "manager"), filepath.Join(i.dir, "kubeconfig")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", i.binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the manager: %v: %s", err, out)
	}
	if err := os.WriteFile(i.kubeconfig, environment.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no definitions in config/crd/bases")
	}
	i.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kruise-system"}})
	for _, file := range append(files, "../../config/webhook/mutating.yaml", "../../config/webhook/validating.yaml") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(text, &object.Object); err != nil {
			t.Fatal(err)
		}
		i.create(object)
	}
	return i
}

func (i *installation) create(object client.Object) {
	i.t.Helper()
	if err := i.kube.Create(i.t.Context(), object); err != nil {
		i.t.Fatalf("creating %s: %v", object.GetName(), err)
	}
}

// soon repeats the check until it succeeds, for a minute.
func (i *installation) soon(check func() error) (err error) {
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		if err = check(); err == nil {
			return nil
		}
	}
	return err
}

// eventually repeats the check until it succeeds.
func (i *installation) eventually(what string, check func() error) {
	i.t.Helper()
	if err := i.soon(check); err != nil {
		i.t.Fatalf("%s: not within a minute: %v", what, err)
	}
}

// replica is a running manager.
type replica struct {
	*installation
	process         *exec.Cmd
	ended           chan error
	probes, metrics string
	mu              sync.Mutex
	logs            bytes.Buffer
}

func (r *replica) Write(text []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.Write(text)
}

func (r *replica) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.logs.String()
}

func (i *installation) replica(args ...string) *replica {
	i.t.Helper()
	address := func() string {
		listener, err := (&net.ListenConfig{}).Listen(i.t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			i.t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
		return listener.Addr().String()
	}
	r := &replica{installation: i, ended: make(chan error, 1), probes: address(), metrics: address()}
	_, port, err := net.SplitHostPort(address())
	if err != nil {
		i.t.Fatal(err)
	}
	r.process = exec.CommandContext(context.WithoutCancel(i.t.Context()), i.binary,
		append([]string{"--kubeconfig=" + i.kubeconfig, "--metrics-addr=" + r.metrics, "--health-probe-addr=" + r.probes,
			"--enable-pprof=false", "--shutdown-delay-duration=0s",
			"--tracing-endpoint=http://127.0.0.1:1", "--tracing-sampling-rate-per-million=1000000"}, // nobody answers there (OPS-123 (part))
			args...)...)
	r.process.Env = append(os.Environ(), "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_CERT_WRITER=secret", "WEBHOOK_PORT="+port,
		"WEBHOOK_CERT_DIR="+filepath.Join(i.dir, port))
	r.process.Stdout, r.process.Stderr = r, r
	if err := r.process.Start(); err != nil {
		i.t.Fatal(err)
	}
	go func() { r.ended <- r.process.Wait() }()
	i.t.Cleanup(func() {
		_ = r.process.Process.Kill()
		if i.t.Failed() {
			i.t.Logf("the manager at %s:\n%s", r.probes, r.text())
		}
	})
	return r
}

func (r *replica) get(url string) (string, error) {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, body)
	}
	return string(body), err
}

func (r *replica) becomesReady() {
	r.t.Helper()
	r.eventually("ready", func() error {
		_, err := r.get("http://" + r.probes + "/readyz/webhook-ready")
		return err
	})
}

// shows waits until the metrics have the texts.
func (r *replica) shows(texts ...string) {
	r.t.Helper()
	r.eventually("metrics", func() error {
		served, err := r.get("http://" + r.metrics + "/metrics")
		for _, text := range texts {
			if !strings.Contains(served, text) {
				err = errors.Join(err, fmt.Errorf("no %q", text))
			}
		}
		return err
	})
}

// gated creates a pod whose condition a controller of the leader sets.
func (i *installation) gated(name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}},
			ReadinessGates: []corev1.PodReadinessGate{{ConditionType: pub.KruisePodReady}}}}
	i.create(pod)
	return pod
}

// listed lists a kind of group example.com for WorkloadSpreads.
func (i *installation) listed(kind string) {
	i.t.Helper()
	i.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kruise-system", Name: workloadspread.ConfigMapName},
		Data: map[string]string{workloadspread.AllowListKey: fmt.Sprintf(`{"workloads":[{"Group":"example.com","Kind":%q}]}`, kind)}})
}

// worked returns an error until a controller has set the pod's condition.
func (i *installation) worked(pod *corev1.Pod) error {
	if err := i.kube.Get(i.t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil {
		return err
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == pub.KruisePodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("conditions %+v", pod.Status.Conditions)
}

// hold gives the lease to the named holder, or to nobody if by is empty.
func (i *installation) hold(by string) {
	i.t.Helper()
	i.eventually("the lease", func() error {
		lease := &coordinationv1.Lease{}
		if err := i.kube.Get(i.t.Context(), types.NamespacedName{Namespace: "kruise-system", Name: "kruise-manager"}, lease); err != nil {
			return err
		}
		hour, now := int32(3600), metav1.NowMicro()
		lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &by, &hour, &now
		return i.kube.Update(i.t.Context(), lease)
	})
}

// OPS-032, OPS-092 (part), OPS-090 (part): a replica that does not lead answers webhooks and probes and keeps
// certificates, has read all pods, and its controllers wait until it leads. A replica that loses the lease ends. The metrics
// show who leads.
func TestAReplicaThatStandsByAnswersWebhooksAndDoesNotReconcile(t *testing.T) {
	t.Parallel()
	i := install(t)
	election := []string{"--leader-election-lease-duration=4s", "--leader-election-renew-deadline=2s",
		"--leader-election-retry-period=200ms"}
	leader := i.replica(election...)
	leader.becomesReady()
	first := i.gated("first")
	i.eventually("the leader works", func() error { return i.worked(first) })
	leader.shows("kruise_manager_is_leader 1", "kruise_build_info{commit=", `leader_election_master_status{name="kruise-manager"} 1`,
		"controller_runtime_reconcile_total{", "workqueue_depth{",
		`controller_runtime_reconcile_total{controller="statefulset",`, `workqueue_adds_total{controller="statefulset",`,
		`controller_runtime_reconcile_total{controller="daemonset",`, `workqueue_adds_total{controller="daemonset",`,
		"rest_client_requests_total{", "controller_runtime_webhook_requests_total{", "go_goroutines ")
	served, err := leader.get("http://" + leader.metrics + "/metrics")
	if err != nil {
		t.Errorf("reading the metrics: %v", err)
	}
	for line := range strings.Lines(served) {
		name, _, _ := strings.Cut(line, "{")
		// ADS-196, ASTS-309: they have none of their own
		for _, kind := range []string{"statefulset", "daemonset"} {
			if line[0] != '#' && strings.Contains(name, kind) {
				t.Errorf("there is a metric for each %s: %s", kind, line)
			}
		}
	}
	i.hold("somebody")
	select {
	case err := <-leader.ended:
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() == 0 {
			t.Errorf("a leader without its lock ended with %v, want an exit code that is not 0", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("a leader without lease goes on")
	}
	standby := i.replica(append(election, "--v=2")...)
	standby.becomesReady()
	i.eventually("it has read all pods before it leads", func() error {
		if logs := standby.text(); !regexp.MustCompile(`"Caches populated".*type="\*v1\.Pod"`).MatchString(logs) {
			return errors.New("it has not")
		}
		return nil
	})
	second := i.gated("second")
	set := func(name string) *unstructured.Unstructured {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {namespace: default}, spec: {replicas: 1, selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:1"}]}}}}`), &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetName(name)
		return object
	}
	web := set("web")
	i.create(web)
	if limit, found, err := unstructured.NestedInt64(web.Object, "spec", "revisionHistoryLimit"); err != nil {
		t.Errorf("reading the limit of the history: %v", err)
	} else if !found {
		t.Error("no default was filled in for the limit of the history")
	} else if limit != 10 {
		t.Errorf("default of the limit of the history: got %d, want 10", limit)
	}
	key := types.NamespacedName{Name: "kruise-validating-webhook-configuration"}
	damaged := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := i.kube.Get(t.Context(), key, damaged); err != nil {
		t.Fatal(err)
	}
	bundle := damaged.Webhooks[0].ClientConfig.CABundle
	if len(bundle) == 0 {
		t.Error("no bundle")
	}
	damaged.Webhooks[0].ClientConfig.CABundle = nil
	if err := i.kube.Update(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	i.eventually("the replica that does not lead mends the bundle", func() error {
		now := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := i.kube.Get(t.Context(), key, now); err != nil {
			return err
		}
		if !bytes.Equal(now.Webhooks[0].ClientConfig.CABundle, bundle) {
			return errors.New("not mended")
		}
		return nil
	})
	i.listed("Game") // on a replica that does not lead, too: WS-026 (part)
	i.eventually("a WorkloadSpread for a listed kind is admitted", func() error {
		spread := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{apiVersion: apps.kruise.io/v1beta1, kind: WorkloadSpread, metadata: {namespace: default, name: chess},
			spec: {targetRef: {apiVersion: example.com/v1, kind: Game, name: chess}, subsets: [{name: a}]}}`), &spread.Object); err != nil {
			return err
		}
		return i.kube.Create(t.Context(), spread)
	})
	standby.shows("kruise_manager_is_leader 0", `leader_election_master_status{name="kruise-manager"} 0`)
	if err := i.worked(second); err == nil {
		t.Error("a controller works on a replica that does not lead")
	}
	pods := &corev1.PodList{}
	if err := i.kube.List(t.Context(), pods, client.MatchingLabels{"app": "web"}); err != nil {
		t.Errorf("listing the pods of the CloneSet: %v", err)
	}
	if n := len(pods.Items); n != 0 {
		t.Errorf("pods of the CloneSet: got %d, want none", n)
	}
	i.hold("")
	i.eventually("it works as soon as it leads", func() error { return i.worked(second) })
	standby.shows("kruise_manager_is_leader 1")
}

// OPS-034: with --namespace only the objects of that namespace, and cluster-scoped ones, are reconciled. The
// manual says that this flag cannot be used with webhooks of pods.
func TestOnlyObjectsOfTheGivenNamespaceAreReconciled(t *testing.T) {
	t.Parallel()
	i := install(t)
	for _, name := range []string{"watched", "elsewhere"} {
		i.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	r := i.replica("--namespace=watched", "--feature-gates=PodWebhook=false", "--enable-leader-election=false",
		"--nodeimage-creation-delay=0s")
	r.becomesReady()
	set := func(namespace string) *appsv1beta1.CloneSet {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, metadata: {name: web}, spec: {replicas: 2, selector: {matchLabels: {app: web}},
			template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "i:1"}]}}}}`), &object.Object); err != nil {
			t.Fatal(err)
		}
		object.SetNamespace(namespace)
		i.create(object)
		return &appsv1beta1.CloneSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	}
	elsewhere, watched := set("elsewhere"), set("watched")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}
	i.create(node)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := i.kube.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	sidecars := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: apps.kruise.io/v1beta1, kind: SidecarSet, metadata: {name: logs}, spec: {selector: {matchLabels: {app: web}}, containers: [{name: logs, image: "logs:1"}]}}`), &sidecars.Object); err != nil {
		t.Fatal(err)
	}
	i.create(sidecars)
	count := func(namespace string) int {
		pods := &corev1.PodList{}
		if err := i.kube.List(t.Context(), pods, client.InNamespace(namespace)); err != nil {
			t.Fatal(err)
		}
		return len(pods.Items)
	}
	i.eventually("the CloneSet in the namespace has its pods", func() error {
		if n := count("watched"); n != 2 {
			return fmt.Errorf("%d pods", n)
		}
		if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(watched), watched); err != nil {
			return err
		}
		if watched.Status.Replicas != 2 {
			return fmt.Errorf("%+v", watched.Status)
		}
		return nil
	})
	i.eventually("the node has its NodeImage", func() error {
		return i.kube.Get(t.Context(), types.NamespacedName{Name: "node-a"}, &appsv1beta1.NodeImage{})
	})
	i.eventually("the SidecarSet has a status", func() error {
		now := &appsv1beta1.SidecarSet{}
		if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(sidecars), now); err != nil {
			return err
		}
		if now.Status.ObservedGeneration != now.Generation {
			return fmt.Errorf("%+v", now.Status)
		}
		return nil
	})
	if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(elsewhere), elsewhere); err != nil {
		t.Errorf("elsewhere: %v", err)
	}
	if elsewhere.Status.ObservedGeneration != 0 {
		t.Errorf("elsewhere: got status %+v, want none", elsewhere.Status)
	}
	if n := count("elsewhere"); n != 0 {
		t.Errorf("elsewhere: got %d pods, want none", n)
	}
	manual, err := os.ReadFile("../../docs/operate/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), "to one namespace. The webhooks of pods need to see all: switch gate `PodWebhook` off with it") {
		t.Error("the manual does not say what goes with it")
	}
}
