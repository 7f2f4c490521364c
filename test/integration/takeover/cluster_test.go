//go:build integration

// Package takeover tests that the manager takes over from the reference's, and gives back, against a real API
// server. Stand-ins play the reference's manager, kubelets and the controllers of Deployments and DaemonSets;
// the manager of this project is the real one.
package takeover

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/registry"
)

const (
	namespace = "kruise-system"
	theirs    = "openkruise/kruise-manager:v1.8.0"
	ours      = "example.com/afloat/manager:1"
)

// cluster is an API server with stand-ins for what acts in a cluster.
type cluster struct {
	t      *testing.T
	config *rest.Config
	kube   client.Client
	dir    string
	// other is the reference's manager: it answers webhooks while it runs.
	other   *httptest.Server
	running atomic.Bool
	// locks are the kinds of objects by which it leads: Lease, ConfigMap, or both.
	locks []string
	// slow is for how many turns it goes on after it was told to end, and ending counts them.
	slow, ending int
	// heals: it writes its webhook configurations anew from their annotation, as often as each turn.
	heals bool
	// paths are those that it handles.
	paths map[string]bool
	// told is called in each turn with the Deployment, before anything else.
	told func(*appsv1.Deployment)
	// manager is this project's, while it runs.
	manager *exec.Cmd
	health  string
	logs    bytes.Buffer
	// byManager and byCommand are the writes of the manager and of the command.
	byManager, byCommand *proxy
	mu                   sync.Mutex
	faults               []string
}

// proxy records writes.
type proxy struct {
	*httptest.Server
	mu     sync.Mutex
	writes []string
}

func newProxy(t *testing.T, config *rest.Config) *proxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	forward := &httputil.ReverseProxy{Transport: transport, FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && !strings.Contains(r.URL.RawQuery, "dryRun") && !strings.Contains(r.URL.Path, "selfsubject") {
			p.mu.Lock()
			p.writes = append(p.writes, r.Method+" "+r.URL.Path)
			p.mu.Unlock()
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(p.CloseClientConnections)
	return p
}

// with are the writes of which the path has the text.
func (p *proxy) with(text string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []string
	for _, write := range p.writes {
		if strings.Contains(write, text) {
			found = append(found, write)
		}
	}
	return found
}

// kubeconfig writes a file that names a server.
func (c *cluster) kubeconfig(server string) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: prod, context: {cluster: c}}], current-context: prod}`, server)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, config: config, dir: t.TempDir(), locks: []string{"Lease"}, byManager: newProxy(t, config), byCommand: newProxy(t, config)}
	if c.kube, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(c.dir, "manager"),
		"../../../cmd/manager").CombinedOutput(); err != nil {
		t.Fatalf("building the manager: %v: %s", err, out)
	}
	c.other = httptest.NewTLSServer(http.HandlerFunc(c.answer))
	t.Cleanup(c.other.Close)
	c.other.Config.ErrorLog = nil
	return c
}

// answer is what the reference's manager answers to webhooks and conversion.
func (c *cluster) answer(w http.ResponseWriter, r *http.Request) {
	if !c.running.Load() {
		http.Error(w, "nobody is here", http.StatusServiceUnavailable)
		return
	}
	var answer any
	if r.URL.Path == "/convert" {
		var review apiextensionsv1.ConversionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			c.fault("reading a conversion: %v", err)
		}
		response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
		for _, raw := range review.Request.Objects {
			converted, err := convert(raw.Raw, review.Request.DesiredAPIVersion)
			if err != nil {
				c.fault("converting: %v", err)
			}
			response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: converted})
		}
		answer = &apiextensionsv1.ConversionReview{TypeMeta: review.TypeMeta, Response: response}
	} else {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			c.fault("reading a review: %v", err)
		}
		answer = &admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{UID: review.Request.UID,
			Allowed: true}}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		c.fault("answering: %v", err)
	}
}

// convert is what both managers do alike.
func convert(raw []byte, version string) ([]byte, error) {
	var of metav1.TypeMeta
	if err := json.Unmarshal(raw, &of); err != nil {
		return nil, err
	}
	from := schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)
	for i := range registry.Kinds {
		if kind := &registry.Kinds[i]; kind.Group == from.Group && kind.Name == from.Kind {
			return kind.Conversion.Convert(raw, from, schema.FromAPIVersionAndKind(version, of.Kind))
		}
	}
	return nil, fmt.Errorf("no such kind: %s", from)
}

func (c *cluster) fault(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, fmt.Sprintf(format, args...))
}

// act runs the stand-ins until the test ends.
func (c *cluster) act() {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				if err := c.turn(ctx); err != nil && ctx.Err() == nil && client.IgnoreAlreadyExists(client.IgnoreNotFound(err)) != nil &&
					!strings.Contains(err.Error(), "modified") {
					c.fault("stand-in: %v", err)
				}
			}
		}
	})
	c.t.Cleanup(func() {
		cancel()
		done.Wait()
		c.end()
	})
}

// turn brings the world one step nearer to what is wanted: pods of the Deployment, statuses, and the managers
// themselves.
func (c *cluster) turn(ctx context.Context) error {
	var deployment appsv1.Deployment
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kruise-controller-manager"}, &deployment); err != nil {
		return err
	}
	var pods corev1.PodList
	if err := c.kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	if c.told != nil {
		c.told(&deployment)
	}
	image := deployment.Spec.Template.Spec.Containers[0].Image
	if *deployment.Spec.Replicas > 0 {
		c.ending = 0
	}
	managers := 0
	for i := range pods.Items {
		pod := &pods.Items[i]
		switch {
		case pod.Name == "kruise-takeover-check" && len(pod.Status.ContainerStatuses) == 0:
			for _, container := range pod.Spec.Containers {
				pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, corev1.ContainerStatus{Name: container.Name,
					Image: container.Image,
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", ContainerID: "x://1"}}})
			}
			if err := c.kube.Status().Update(ctx, pod); err != nil {
				return err
			}
		case pod.Labels["control-plane"] != "controller-manager":
		case *deployment.Spec.Replicas == 0:
			if c.running.Load() && c.ending < c.slow {
				c.ending++
				continue
			}
			if c.end(); c.running.Swap(false) {
				continue // its end takes some time
			}
			if err := c.kube.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
				return err
			}
		case pod.Spec.Containers[0].Image != image:
			c.fault("%s is to run while a pod of %s is there", image, pod.Spec.Containers[0].Image)
		default:
			managers++
		}
	}
	ready := int32(0)
	if *deployment.Spec.Replicas > 0 {
		if managers == 0 {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "kruise-controller-manager-",
				Labels: map[string]string{"control-plane": "controller-manager"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "manager", Image: image}}}}
			return c.kube.Create(ctx, pod)
		}
		if c.serves(&deployment, image) {
			ready = *deployment.Spec.Replicas
		}
	}
	if c.running.Load() {
		if err := c.renew(ctx); err != nil {
			return err
		}
		if c.heals {
			if err := c.heal(ctx); err != nil {
				return err
			}
		}
		if err := c.reconcile(ctx); err != nil {
			return err
		}
	}
	if s := deployment.Status; s.ReadyReplicas != ready || s.ObservedGeneration != deployment.Generation {
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: deployment.Generation, Replicas: ready, UpdatedReplicas: ready,
			ReadyReplicas: ready, AvailableReplicas: ready}
		if err := c.kube.Status().Update(ctx, &deployment); err != nil {
			return err
		}
	}
	var daemons appsv1.DaemonSet
	if err := c.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "kruise-daemon"}, &daemons); err != nil {
		return err
	}
	if daemons.Status.ObservedGeneration != daemons.Generation {
		daemons.Status.ObservedGeneration = daemons.Generation
		return c.kube.Status().Update(ctx, &daemons)
	}
	return nil
}

// renew is how the reference's manager keeps its lock. It does not give it back.
func (c *cluster) renew(ctx context.Context) error {
	if slices.Contains(c.locks, "ConfigMap") {
		if err := c.renewOld(ctx); err != nil || len(c.locks) == 1 {
			return err
		}
	}
	var lease coordinationv1.Lease
	key := client.ObjectKey{Namespace: namespace, Name: "kruise-manager"}
	now := metav1.NowMicro()
	if err := c.kube.Get(ctx, key, &lease); client.IgnoreNotFound(err) != nil {
		return err
	} else if err != nil {
		lease.Namespace, lease.Name = key.Namespace, key.Name
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("the-other-one"), LeaseDurationSeconds: new(int32(3)), RenewTime: &now,
			AcquireTime: &now}
		return c.kube.Create(ctx, &lease)
	}
	if holder := *lease.Spec.HolderIdentity; holder != "" && holder != "the-other-one" {
		c.fault("the other manager runs while %s holds the lock", holder)
	}
	lease.Spec.HolderIdentity, lease.Spec.RenewTime, lease.Spec.LeaseDurationSeconds = new("the-other-one"), &now, new(int32(3))
	return c.kube.Update(ctx, &lease)
}

// renewOld is how managers up to 1.4 keep their lock.
func (c *cluster) renewOld(ctx context.Context) error {
	lock := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kruise-manager"}}
	now, err := json.Marshal(map[string]any{"holderIdentity": "the-other-one", "leaseDurationSeconds": 3, "renewTime": metav1.NowMicro()})
	if err != nil {
		return err
	}
	if err := c.kube.Create(ctx, lock); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{"control-plane.alpha.kubernetes.io/leader": string(now)}}})
	if err != nil {
		return err
	}
	return c.kube.Patch(ctx, lock, client.RawPatch(types.MergePatchType, body))
}

// reconcile writes the status of new objects of all kinds, as controllers do: of those by which a takeover
// sees that a manager acts.
func (c *cluster) reconcile(ctx context.Context) error {
	const name = "afloat-takeover-probe"
	clonesets, err := installation.Get(ctx, c.kube, installation.Definitions, "", "clonesets.apps.kruise.io")
	if err != nil || clonesets == nil {
		return err
	}
	// CloneSets are in use in all tests: without a probe of them there is none.
	if first, err := installation.Get(ctx, c.kube, installation.StoredKind(clonesets), namespace, name); err != nil || first == nil {
		return err
	}
	return installation.Each(ctx, c.kube, installation.Definitions, func(definition *unstructured.Unstructured) error {
		if !installation.OfProject(definition) {
			return nil
		}
		probe := &unstructured.Unstructured{}
		probe.SetGroupVersionKind(installation.StoredKind(definition))
		key := client.ObjectKey{Namespace: namespace, Name: name}
		if installation.Text(definition.Object, "spec", "scope") == "Cluster" {
			key.Namespace = ""
		}
		err := c.kube.Get(ctx, key, probe)
		if _, has := probe.Object["status"]; err != nil || has {
			return client.IgnoreNotFound(err)
		}
		status := map[string]any{}
		for _, version := range installation.Maps(definition.Object, "spec", "versions") {
			schema, _, _ := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "status")
			required, _, _ := unstructured.NestedStringSlice(schema, "required")
			fields, _, _ := unstructured.NestedMap(schema, "properties")
			for field := range fields {
				switch installation.Text(fields, field, "type") {
				case "integer":
					status[field] = 0
				case "string":
					if slices.Contains(required, field) {
						status[field] = ""
					}
				}
			}
		}
		status["observedGeneration"] = probe.GetGeneration()
		body, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			return err
		}
		return client.IgnoreNotFound(c.kube.Status().Patch(ctx, probe, client.RawPatch(types.MergePatchType, body)))
	})
}

// heal is what each replica of the reference does with its webhook configurations once a minute and when they
// change: the list comes from the annotation template, or becomes it; where webhooks are called is set;
// entries that nothing handles are dropped.
func (c *cluster) heal(ctx context.Context) error {
	for kind, name := range map[schema.GroupVersionKind]string{installation.MutatingKind: installation.Mutating, installation.ValidatingKind: installation.Validating} {
		live := &unstructured.Unstructured{}
		live.SetGroupVersionKind(kind)
		if err := c.kube.Get(ctx, client.ObjectKey{Name: name}, live); err != nil {
			return err
		}
		before := live.DeepCopy()
		entries, _ := live.Object["webhooks"].([]any)
		annotations := live.GetAnnotations()
		var kept []any
		if err := json.Unmarshal([]byte(annotations["template"]), &kept); err != nil || len(kept) == 0 {
			text, err := json.Marshal(entries)
			if err != nil {
				return err
			}
			kept = entries
			live.SetAnnotations(map[string]string{"template": string(text)})
		}
		var healed []any
		for _, item := range kept {
			entry, _ := item.(map[string]any)
			config, _ := entry["clientConfig"].(map[string]any)
			path := installation.Text(config, "service", "path")
			if at, has := config["url"].(string); has {
				if u, err := url.Parse(at); err == nil {
					path = u.Path
				}
			}
			if !c.paths[path] {
				continue
			}
			entry["clientConfig"] = map[string]any{"caBundle": c.bundle(), "url": c.other.URL + path}
			healed = append(healed, entry)
		}
		live.Object["webhooks"] = healed
		if equality.Semantic.DeepEqual(before, live) {
			continue
		}
		if err := c.kube.Update(ctx, live, client.FieldOwner("kruise-manager")); err != nil {
			return err
		}
	}
	return nil
}

// bundle is the authority of the reference's manager.
func (c *cluster) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.other.Certificate().Raw}))
}

// serves lets the manager of that image run, and tells whether it is ready.
func (c *cluster) serves(deployment *appsv1.Deployment, image string) bool {
	if strings.HasPrefix(image, "openkruise/") {
		c.running.Store(true)
		return true
	}
	if c.manager == nil {
		c.start(deployment.Spec.Template.Spec.Containers[0].Args)
	}
	answer, err := http.Get("http://" + c.health + "/readyz") //nolint:noctx // a test
	if err != nil {
		return false
	}
	_ = answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// start starts the manager of this project with the arguments of its Deployment, but for addresses.
func (c *cluster) start(args []string) {
	free := func() int {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			c.fault("a port: %v", err)
			return 0
		}
		defer func() { _ = listener.Close() }()
		return listener.Addr().(*net.TCPAddr).Port
	}
	c.health = fmt.Sprintf("127.0.0.1:%d", free())
	c.manager = exec.CommandContext(context.Background(), filepath.Join(c.dir, "manager"), append(args, "--kubeconfig",
		c.kubeconfig(c.byManager.URL), "--metrics-addr=127.0.0.1:0",
		"--health-probe-addr="+c.health, "--enable-pprof=false", "--shutdown-delay-duration=0s", "--protection-log-path="+c.dir)...)
	c.manager.Env = append(os.Environ(), "WEBHOOK_HOST=127.0.0.1", "WEBHOOK_CERT_WRITER=fs", "WEBHOOK_CERT_DIR="+filepath.Join(c.dir,
		"certs"),
		fmt.Sprintf("WEBHOOK_PORT=%d", free()))
	c.manager.Stdout, c.manager.Stderr = &c.logs, &c.logs
	if err := c.manager.Start(); err != nil {
		c.fault("starting the manager: %v", err)
		c.manager = nil
	}
}

// end ends the manager of this project, if it runs.
func (c *cluster) end() {
	if c.manager == nil {
		return
	}
	_ = c.manager.Process.Signal(os.Interrupt)
	_ = c.manager.Wait()
	c.manager = nil
}

// get reads an object.
func (c *cluster) get(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	c.t.Helper()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	if err := c.kube.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		c.t.Fatal(err)
	}
	return object
}
