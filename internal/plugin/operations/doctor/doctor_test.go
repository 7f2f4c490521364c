package doctor

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
	"github.com/afloat-project/afloat/internal/plugin/plugintest/golden"
)

var now = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// certificate is one that is good until then, in PEM.
func certificate(t *testing.T, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(until.Unix()), NotBefore: now.Add(-time.Hour), NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// healthy is an installation of this release that is well, with one of everything.
func healthy(t *testing.T) *memory {
	t.Helper()
	authority := certificate(t, now.AddDate(9, 0, 0))
	objects, err := installation.Manifests(installation.Choice{Image: "afloat/manager:1", DaemonImage: "afloat/daemon:1"})
	if err != nil {
		t.Fatal(err)
	}
	bundle := base64.StdEncoding.EncodeToString([]byte(authority))
	for _, object := range objects {
		for _, entry := range installation.Entries(object) {
			entry["clientConfig"].(map[string]any)["caBundle"] = bundle
		}
		if installation.Text(object.Object, "spec", "conversion", "strategy") == "Webhook" {
			set(t, object, bundle, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		}
		switch object.GetKind() {
		case "Deployment":
			set(t, object, map[string]any{"readyReplicas": int64(2)}, "status")
		case "CustomResourceDefinition":
			set(t, object, []any{installation.StoredKind(object).Version}, "status", "storedVersions")
		}
	}
	more, err := installation.Parse([]byte(`
{apiVersion: v1, kind: Secret, metadata: {name: kruise-webhook-certs, namespace: kruise-system}, data: {ca-cert.pem: ` + bundle + `, cert.pem: ` + bundle + `}}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kruise-manager, namespace: kruise-system}
spec: {holderIdentity: manager-a_0815, leaseDurationSeconds: 15, renewTime: "2026-01-02T14:59:58.000000Z"}
---
apiVersion: v1
kind: Pod
metadata: {name: manager-a, namespace: kruise-system, labels: {control-plane: controller-manager}}
spec: {containers: [{name: manager, image: "afloat/manager:1"}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kruise-webhook-service-x, namespace: kruise-system, labels: {kubernetes.io/service-name: kruise-webhook-service}}
endpoints: [{conditions: {ready: true}}, {conditions: {ready: true}}]
---
apiVersion: v1
kind: Node
metadata: {name: node-a, labels: {kubernetes.io/os: linux}}
status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: daemon-a, namespace: kruise-system, labels: {control-plane: daemon}}
spec: {nodeName: node-a, containers: [{name: daemon, image: "afloat/daemon:1"}]}
status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}
---
apiVersion: apps.kruise.io/v1beta1
kind: NodeImage
metadata: {name: node-a}
spec: {images: {app: {tags: [{tag: "1", createdAt: "2026-01-01T00:00:00Z"}]}}}
status: {desired: 1, succeeded: 1}
---
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: web, namespace: shop}
status: {conditions: [{type: Progressing, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-x, namespace: shop, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: u}]}
spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: data-x}}]}
status: {phase: Running}
---
apiVersion: apps.kruise.io/v1beta1
kind: ContainerRecreateRequest
metadata: {name: again, namespace: shop, creationTimestamp: "2026-01-02T14:59:00Z"}
spec: {activeDeadlineSeconds: 300}
---
apiVersion: policy.kruise.io/v1beta1
kind: PodUnavailableBudget
metadata: {name: web, namespace: shop}
status: {totalReplicas: 3, unavailableAllowed: 1, currentAvailable: 3, desiredAvailable: 2}
`))
	if err != nil {
		t.Fatal(err)
	}
	return &memory{objects: append(objects, more...), forbidden: map[string]bool{}}
}

func set(t *testing.T, object *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func (m *memory) find(kind, name string) *unstructured.Unstructured {
	return installation.Find(m.objects, kind, name)
}

// add adds objects.
func (m *memory) add(t *testing.T, text string) {
	t.Helper()
	objects, err := installation.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	m.objects = append(m.objects, objects...)
}

// examine runs the command on a cluster of Kubernetes 1.36, and returns what it printed and the code with
// which it ends.
func examine(t *testing.T, m *memory, output string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	d := &doctor{IOStreams: genericiooptions.IOStreams{Out: &out}, output: output, namespace: "kruise-system", client: m,
		counts: map[string]int{}, now: now,
		server: func() (*version.Info, error) {
			return &version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3"}, nil
		}}
	err := d.run(t.Context())
	code := 0
	var exit interface{ ExitStatus() int }
	if e, ok := err.(interface{ ExitStatus() int }); ok {
		exit = e
		code = exit.ExitStatus()
	} else if err != nil {
		t.Fatal(err)
	}
	if slices.ContainsFunc(m.largest, func(limit int64) bool { return limit != 500 }) {
		t.Errorf("pages of %v", m.largest)
	}
	return out.String(), code
}

// OPS-186: the report of clusters that are healthy, unhealthy, empty, large, or not the user's to read. What
// it is made from can only be read, and examine checks the size of pages.
func TestDoctor(t *testing.T) {
	t.Run("healthy", healthyCase)
	t.Run("unhealthy", unhealthyCase)
	t.Run("forbidden", forbiddenCase)
	t.Run("nothing installed", nothingCase)
	t.Run("bounded", boundedCase)
}

// An installation that is well has neither problems nor warnings.
func healthyCase(t *testing.T) {
	out, code := examine(t, healthy(t), "")
	golden.Compare(t, "healthy", out)
	if code != 0 {
		t.Errorf("code: got %d, want 0", code)
	}
	for _, word := range []string{"problem  ", "warning  "} {
		if strings.Contains(out, word) {
			t.Errorf("there is a %s: %s", strings.TrimSpace(word), out)
		}
	}
}

// What is wrong is said, with what to do about it, and the command ends with code 1.
func unhealthyCase(t *testing.T) {
	m := healthy(t)
	set(t, m.find("Deployment", installation.Manager), int64(1), "status", "readyReplicas")
	set(t, m.find("Pod", "manager-a"), []any{map[string]any{"name": "manager", "restartCount": int64(4),
		"lastState": map[string]any{"terminated": map[string]any{"finishedAt": "2026-01-02T14:40:00Z", "reason": "OOMKilled",
			"exitCode": int64(137)}}}},
		"status", "containerStatuses")
	set(t, m.find("Lease", installation.Lock), "2026-01-02T14:50:00.000000Z", "spec", "renewTime")
	set(t, m.find("Secret", installation.Secret), base64.StdEncoding.EncodeToString([]byte(certificate(t, now.AddDate(0, 0, 3)))), "data",
		"cert.pem")
	mutating := m.find("MutatingWebhookConfiguration", installation.Mutating)
	entries, _ := mutating.Object["webhooks"].([]any)
	first, _ := entries[0].(map[string]any)
	first["failurePolicy"] = "Ignore"
	first["clientConfig"].(map[string]any)["caBundle"] = base64.StdEncoding.EncodeToString([]byte(certificate(t, now.AddDate(1, 0, 0))))
	mutating.Object["webhooks"] = append(entries[:len(entries)-1], map[string]any{"name": "mgamemarker.kb.io", "failurePolicy": "Fail",
		"clientConfig": map[string]any{"caBundle": first["clientConfig"].(map[string]any)["caBundle"],
			"service": map[string]any{"path": "/mutate-apps-kruise-io-gamemarker"}}})
	set(t, m.find("EndpointSlice", "kruise-webhook-service-x"), []any{}, "endpoints")
	clonesets := m.find("CustomResourceDefinition", "clonesets.apps.kruise.io")
	for _, v := range installation.Maps(clonesets.Object, "spec", "versions") {
		properties, _, _ := unstructured.NestedMap(v, "schema", "openAPIV3Schema", "properties", "spec", "properties")
		delete(properties, "lifecycle")
		properties["frobnication"] = map[string]any{"type": "string"}
		if err := unstructured.SetNestedMap(v, properties, "schema", "openAPIV3Schema", "properties", "spec", "properties"); err != nil {
			t.Fatal(err)
		}
	}
	set(t, clonesets, []any{"v1beta1", "v1gamma"}, "status", "storedVersions")
	set(t, m.find("CustomResourceDefinition", "sidecarsets.apps.kruise.io"), map[string]any{"strategy": "None"}, "spec", "conversion")
	m.find("DaemonSet", installation.Daemon).Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)["image"] = "afloat/daemon:2"
	set(t, m.find("NodeImage", "node-a"), map[string]any{}, "status")
	m.add(t, `
{apiVersion: v1, kind: Node, metadata: {name: node-b, labels: {kubernetes.io/os: linux}}, status: {conditions: [{type: Ready, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}
---
{apiVersion: apps.kruise.io/v1beta1, kind: NodeImage, metadata: {name: node-gone}}
---
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata:
  name: stuck
  namespace: shop
  deletionTimestamp: "2026-01-02T12:00:00Z"
  finalizers: [example.com/held]
  managedFields:
  - {manager: hpa, operation: Update, subresource: scale, time: "2026-01-02T14:58:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: argocd, operation: Apply, time: "2026-01-02T14:59:00Z", fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}
status: {conditions: [{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: no pod became ready for ten minutes}]}
---
apiVersion: v1
kind: Event
metadata: {name: e, namespace: shop}
reason: RolloutWaiting
lastTimestamp: "2026-01-02T14:30:00Z"
involvedObject: {kind: StatefulSet, namespace: shop, name: db}
message: "PodsNotReady: 1 of 3 pods is not ready"
---
apiVersion: v1
kind: Event
metadata: {name: old, namespace: shop}
reason: RolloutWaiting
lastTimestamp: "2026-01-02T10:30:00Z"
involvedObject: {kind: StatefulSet, namespace: shop, name: old}
message: told long ago
---
apiVersion: v1
kind: Pod
metadata: {name: web-y, namespace: shop, deletionTimestamp: "2026-01-02T14:00:00Z", ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: u}]}
spec: {nodeName: node-b}
---
apiVersion: v1
kind: Pod
metadata: {name: web-z, namespace: shop, ownerReferences: [{apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: web, uid: u}]}
spec: {volumes: [{name: data, persistentVolumeClaim: {claimName: data-z}}]}
status: {phase: Pending}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data-z, namespace: shop, creationTimestamp: "2026-01-02T14:00:00Z"}, status: {phase: Pending}}
---
apiVersion: apps.kruise.io/v1beta1
kind: ImagePullJob
metadata: {name: warm, namespace: shop, creationTimestamp: "2026-01-02T10:00:00Z"}
spec: {completionPolicy: {activeDeadlineSeconds: 600}}
---
apiVersion: policy.kruise.io/v1beta1
kind: PodUnavailableBudget
metadata: {name: tight, namespace: shop}
status: {totalReplicas: 3, unavailableAllowed: 0, currentAvailable: 2, desiredAvailable: 2}
`)
	set(t, m.find("ValidatingWebhookConfiguration", installation.Validating), []any{
		map[string]any{"manager": "kruise-manager", "operation": "Update", "time": "2026-01-02T14:59:30Z", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:webhooks": map[string]any{`k:{"name":"vcloneset.kb.io"}`: map[string]any{"f:clientConfig": map[string]any{"f:caBundle": map[string]any{}}}}}},
		map[string]any{"manager": "argocd-controller", "operation": "Apply", "time": "2026-01-02T14:59:10Z", "fieldsType": "FieldsV1",
			"fieldsV1": map[string]any{"f:webhooks": map[string]any{`k:{"name":"vcloneset.kb.io"}`: map[string]any{"f:clientConfig": map[string]any{"f:caBundle": map[string]any{}}}}}},
	}, "metadata", "managedFields")
	out, code := examine(t, m, "")
	golden.Compare(t, "unhealthy", out)
	if code != 1 {
		t.Errorf("code %d", code)
	}
	text, _ := examine(t, m, "json")
	var report Report
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Errorf("reading the report %s: %v", text, err)
	}
	if report.Problems == 0 || len(report.Findings) == 0 {
		t.Errorf("the report has no problems or no findings: %s", text)
	}
	checks := map[string]bool{}
	for _, f := range report.Findings {
		checks[f.Check] = true
		if (f.Status == Problem || f.Status == Warning) && f.Advice == "" {
			t.Errorf("no advice: %+v", f)
		}
	}
	for _, check := range []string{"API server", "manager", "leader", "certificates", "webhooks", "definitions", "node daemons",
		"workloads", "pods",
		"requests", "budgets", "fields of others"} {
		if !checks[check] {
			t.Errorf("nothing is said of %s", check)
		}
	}
}

// Whoever may read little is told what is not known, and that is no problem.
func forbiddenCase(t *testing.T) {
	m := healthy(t)
	for _, kind := range []string{"Secret", "Node", "Event", "CustomResourceDefinition", "MutatingWebhookConfiguration", "Lease",
		"DaemonSet"} {
		m.forbidden[kind] = true
	}
	out, code := examine(t, m, "")
	golden.Compare(t, "forbidden", out)
	if code != 0 {
		t.Errorf("code without rights: got %d, want 0", code)
	}
	if !strings.Contains(out, "unknown  ") {
		t.Errorf("output without rights: got %s, want what is unknown in it", out)
	}
}

// Where there is no installation, that is the problem.
func nothingCase(t *testing.T) {
	out, code := examine(t, &memory{}, "yaml")
	golden.Compare(t, "nothing", out)
	if code != 1 {
		t.Errorf("code without an installation: got %d, want 1", code)
	}
}

// A report has a limit of findings for each check.
func boundedCase(t *testing.T) {
	m := healthy(t)
	var many strings.Builder
	for i := range 200 {
		many.WriteString("---\n{apiVersion: v1, kind: Node, metadata: {name: n" + big.NewInt(int64(i)).String() +
			", labels: {kubernetes.io/os: linux}}, status: {conditions: [{type: Ready, status: \"True\", lastTransitionTime: \"2026-01-01T00:00:00Z\"}]}}\n")
	}
	m.add(t, many.String())
	out, _ := examine(t, m, "")
	if n := strings.Count(out, "it has no node daemon"); n == 0 || n > mostOfCheck {
		t.Errorf("nodes without a daemon: got %d told, want 1 to %d: %s", n, mostOfCheck, out)
	}
	if !strings.Contains(out, "and 376 findings more") {
		t.Errorf("output: got %s, want how many findings there are more", out)
	}
}
