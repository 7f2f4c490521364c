//go:build integration

// Package uninstall tests what runs before an installation is removed, against an API server with the shipped
// definitions and webhook configurations and without a manager. KUBEBUILDER_ASSETS names the folder with etcd
// and kube-apiserver.
package uninstall

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

const patience = time.Minute

// TestTheUninstallGuardRefusesWhileThereAreObjects runs the manager's binary as the job of the chart does. It
// refuses for an object of any of the kinds, naming it, also for those that only other releases serve; then
// it removes what fails without a manager, and objects are read and deleted with no manager there (OPS-116
// (TestTheUninstallJobIsThatOfTheRelease has the form of the job), OPS-117 (part), OPS-118 (part)).
func TestTheUninstallGuardRefusesWhileThereAreObjects(t *testing.T) {
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
	kube, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, env.KubeConfig, 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "manager")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../../cmd/manager").CombinedOutput(); err != nil {
		t.Fatalf("building the manager: %v: %s", err, out)
	}
	guard := func(args ...string) (string, error) {
		command := exec.CommandContext(t.Context(), binary, append([]string{"uninstall-guard", "--kubeconfig", kubeconfig}, args...)...)
		command.Env = append(os.Environ(), "POD_NAMESPACE=default")
		out, err := command.CombinedOutput()
		return string(out), err
	}

	files, err := filepath.Glob("../../../config/crd/bases/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there are no definitions in config/crd/bases")
	}
	for _, file := range files {
		apply(t, kube, file)
	}
	const pods = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: c}]}}"
	served := map[string]string{"CloneSet": pods, "StatefulSet": "serviceName: s, " + pods, "DaemonSet": pods,
		"BroadcastJob":         "template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}",
		"UnitedDeployment":     "selector: {matchLabels: {a: b}}, template: {deploymentTemplate: {metadata: {labels: {a: b}}, spec: {" + pods + "}}}",
		"ResourceDistribution": "resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: a}}, targets: {}",
		"AdvancedCronJob":      "schedule: '@daily', template: {jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: c}]}}}}}"}
	var objects []*unstructured.Unstructured
	var named []string
	for kind, spec := range served {
		metadata, name := "{name: web, namespace: default}", "default/web"
		if kind == "ResourceDistribution" { // of the whole cluster
			metadata, name = "{name: web}", "web"
		}
		text := `{apiVersion: apps.kruise.io/v1beta1, kind: ` + kind + `, metadata: ` + metadata + `, spec: {` + spec + `}}`
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		eventually(t, kind, func() error { return kube.Create(t.Context(), object.DeepCopy()) })
		objects, named = append(objects, object), append(named, kind+".apps.kruise.io: "+name+"\n")
	}
	configurations := []client.Object{&admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}}
	read(t, "../../../config/webhook/mutating.yaml", configurations[0])
	read(t, "../../../config/webhook/validating.yaml", configurations[1])
	for _, configuration := range configurations {
		if err := kube.Create(t.Context(), configuration); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "webhooks to be asked", func() error {
		again := objects[slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CloneSet" })].DeepCopy()
		again.SetName("probe")
		if err := kube.Create(t.Context(), again, client.DryRunAll); err == nil {
			return errors.New("nobody is asked")
		}
		return nil
	})

	out, err := guard()
	for _, line := range named {
		if err == nil {
			t.Fatalf("the guard does not refuse: %s", out)
		}
		if !strings.Contains(out, line) {
			t.Fatalf("the guard says %s, want %q in it", out, line)
		}
	}
	if err := kube.Get(t.Context(), client.ObjectKeyFromObject(configurations[0]), configurations[0]); err != nil {
		t.Fatalf("it refused, and removed something: %v", err)
	}
	if out, err = guard("--refuse=false"); err != nil {
		t.Fatalf("uninstalling all the same: %v: %s", err, out)
	}
	for _, configuration := range configurations {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(configuration), configuration); !apierrors.IsNotFound(err) {
			t.Errorf("the configuration %s: got %v, want it gone", configuration.GetName(), err)
		}
	}
	var definitions apiextensionsv1.CustomResourceDefinitionList
	if err := kube.List(t.Context(), &definitions); err != nil {
		t.Fatal(err)
	}
	if n := len(definitions.Items); n != len(files) {
		t.Fatalf("definitions: got %d, want %d", n, len(files))
	}
	for i := range definitions.Items {
		if definition := &definitions.Items[i]; definition.Spec.Conversion.Strategy != apiextensionsv1.NoneConverter {
			t.Errorf("conversion of %s: got %+v, want None", definition.Name, definition.Spec.Conversion)
		}
	}
	for _, object := range objects {
		eventually(t, "the other version to be read", func() error {
			other := object.DeepCopy()
			other.SetAPIVersion("apps.kruise.io/v1alpha1")
			return kube.Get(t.Context(), client.ObjectKeyFromObject(object), other)
		})
		if err := kube.Delete(t.Context(), object); err != nil {
			t.Errorf("deleting %s: %v", object.GetName(), err)
		}
	}
	if out, err = guard(); err != nil { // again, with nothing left to do
		t.Errorf("uninstalling again: %v: %s", err, out)
	}
	if out != "" {
		t.Errorf("uninstalling again: got %s, want nothing to do", out)
	}
	for _, file := range files { // another installation meets no conflict
		apply(t, kube, file)
	}
}

// apply applies a definition as Helm does, on the server's side and without force.
func apply(t *testing.T, kube client.Client, file string) {
	t.Helper()
	definition := &unstructured.Unstructured{}
	read(t, file, definition)
	definition.SetCreationTimestamp(metav1.Time{})
	if err := kube.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(definition), client.FieldOwner("helm")); err != nil {
		t.Errorf("applying %s: %v", file, err)
	}
}

func read(t *testing.T, file string, into client.Object) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("reading %s: %v", file, err)
	}
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
