//go:build integration

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerreconcile "sigs.k8s.io/controller-runtime/pkg/reconcile"
	webhookadmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/admission"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/uninstall"
	"github.com/afloat-project/afloat/internal/reconcile"
	"github.com/afloat-project/afloat/internal/registry"
)

// withSandcastles has the test binary run as a manager that knows one more kind.
const withSandcastles = "AFLOAT_TEST_MANAGER_WITH_SANDCASTLES"

func TestMain(m *testing.M) {
	if os.Getenv(withSandcastles) == "" {
		os.Exit(m.Run())
	}

	registry.Kinds = append(registry.Kinds, sandcastles)
	if err := run(ctrl.SetupSignalHandler(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sandcastle is an object of a kind that is in no list but that of the registry. Its status repeats its spec.
type sandcastle struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              towers `json:"spec"`
	Status            towers `json:"status"`
}

type towers struct {
	Towers int32 `json:"towers,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *sandcastle) DeepCopyObject() runtime.Object {
	copied := *s
	s.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

type sandcastleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []sandcastle `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *sandcastleList) DeepCopyObject() runtime.Object {
	copied := sandcastleList{TypeMeta: l.TypeMeta, ListMeta: l.ListMeta}
	for i := range l.Items {
		copied.Items = append(copied.Items, *l.Items[i].DeepCopyObject().(*sandcastle))
	}
	return &copied
}

const sandcastleFinalizer = "apps.kruise.io/sandcastle"

var sandcastleVersion = schema.GroupVersion{Group: "apps.kruise.io", Version: "v1alpha1"}

// sandcastles is the entry of the kind in the registry, which is all that is written for it.
var sandcastles = framework.Kind{
	Group:      sandcastleVersion.Group,
	Name:       "Sandcastle",
	Plural:     "sandcastles",
	Version:    sandcastleVersion.Version,
	Webhooks:   sandcastleWebhooks,
	Controller: "sandcastle",
	Workers:    2,
	Workload:   true,
	Access:     framework.Edit,
	Finalizer:  sandcastleFinalizer,
	Setup:      setUpSandcastles,
}

// sandcastleWebhooks give a sandcastle three towers, and refuse more than nine.
func sandcastleWebhooks(*framework.Environment) framework.Webhooks {
	read := func(request webhookadmission.Request) (towers int64, found bool, err error) {
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(request.Object.Raw); err != nil {
			return 0, false, err
		}
		return unstructured.NestedInt64(object.Object, "spec", "towers")
	}
	return framework.Webhooks{
		Mutate: func(_ context.Context, request webhookadmission.Request) webhookadmission.Response {
			if _, found, err := read(request); err != nil || found {
				return webhookadmission.Allowed("")
			}
			return webhookadmission.PatchResponseFromRaw(request.Object.Raw,
				bytes.Replace(request.Object.Raw, []byte(`"spec":{`), []byte(`"spec":{"towers":3`), 1))
		},
		Validate: func(_ context.Context, request webhookadmission.Request) webhookadmission.Response {
			if number, _, err := read(request); err != nil || number > 9 {
				return webhookadmission.Denied("spec.towers: at most nine")
			}
			return webhookadmission.Allowed("")
		},
	}
}

func setUpSandcastles(_ context.Context, e *framework.Environment) error {
	// Its definition comes with the manifests, and its type with the package of its group.
	e.Manager.GetScheme().AddKnownTypeWithName(sandcastleVersion.WithKind("Sandcastle"), &sandcastle{})
	e.Manager.GetScheme().AddKnownTypeWithName(sandcastleVersion.WithKind("SandcastleList"), &sandcastleList{})
	kube := e.Manager.GetClient()
	options := reconcile.Options{Workers: *e.Workers["sandcastle"], RateLimiter: e.Limiter, Pulse: e.Pulse}
	return options.Complete("sandcastle", controllerreconcile.Func(
		func(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
			found := &sandcastle{}
			if err := kube.Get(ctx, request.NamespacedName, found); err != nil || found.Spec == found.Status {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			body := fmt.Sprintf(`{"status":{"towers":%d}}`, found.Spec.Towers)
			return ctrl.Result{}, kube.Status().Patch(ctx, found, client.RawPatch(types.MergePatchType, []byte(body)))
		}), ctrl.NewControllerManagedBy(e.Manager).For(&sandcastle{}))
}

// TestAKindIsAnEntryInTheRegistry: a kind whose entry is added to the registry, and that is named nowhere else,
// gets a flag for its workers, its entries in the webhook configurations, its webhooks, a controller that
// begins once its definition is served, the place in `get all`, and the care of an uninstallation. The
// manifests of its rights have a test in hack/manifests.
func TestAKindIsAnEntryInTheRegistry(t *testing.T) {
	i := install(t)
	i.binary = os.Args[0]
	t.Setenv(withSandcastles, "yes")

	for verb, of := range map[string]client.Object{
		"mutate": &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kruise-mutating-webhook-configuration"}},
		"validate": &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: "kruise-validating-webhook-configuration"}},
	} {
		entries, err := admission.Entries([]framework.Kind{sandcastles}, verb)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%s: %d entries, want 1: %v", verb, len(entries), err)
		}
		if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
			t.Fatal(err)
		}
		switch configuration := of.(type) {
		case *admissionregistrationv1.ValidatingWebhookConfiguration:
			configuration.Webhooks = append(configuration.Webhooks, entries[0])
		case *admissionregistrationv1.MutatingWebhookConfiguration:
			one := entries[0]
			configuration.Webhooks = append(configuration.Webhooks, admissionregistrationv1.MutatingWebhook{
				Name: one.Name, ClientConfig: one.ClientConfig, Rules: one.Rules, SideEffects: one.SideEffects,
				FailurePolicy: one.FailurePolicy, AdmissionReviewVersions: one.AdmissionReviewVersions})
		}
		if err := i.kube.Update(t.Context(), of); err != nil {
			t.Fatal(err)
		}
	}

	// The definition comes after the manager.
	manager := i.replica("--sandcastle-workers=1")
	manager.becomesReady()
	open := true
	i.create(&apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: sandcastles.Definition()},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: sandcastles.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: sandcastles.Plural, Kind: sandcastles.Name},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: sandcastles.Version, Served: true, Storage: true,
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: &open}}}}}})

	castle := func(name string, spec map[string]any) *unstructured.Unstructured {
		object := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
		object.SetGroupVersionKind(sandcastles.Stored())
		object.SetNamespace("default")
		object.SetName(name)
		return object
	}
	small := castle("small", map[string]any{})
	i.eventually("a sandcastle", func() error { return i.kube.Create(t.Context(), small) })
	if number, _, _ := unstructured.NestedInt64(small.Object, "spec", "towers"); number != 3 {
		t.Errorf("towers of a sandcastle without any: got %d, want the default 3", number)
	}
	if err := i.kube.Create(t.Context(), castle("large", map[string]any{"towers": int64(10)})); !apierrors.IsForbidden(err) ||
		!strings.Contains(err.Error(), "at most nine") {
		t.Errorf("creating a sandcastle of ten towers: got %v, want it refused", err)
	}
	i.eventually("its controller", func() error {
		if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(small), small); err != nil {
			return err
		}
		if number, _, _ := unstructured.NestedInt64(small.Object, "status", "towers"); number != 3 {
			return fmt.Errorf("towers in the status: got %d, want 3", number)
		}
		return nil
	})
	manager.shows(`controller_runtime_max_concurrent_reconciles{controller="sandcastle"} 1`)

	// The rest looks at the list as any program does that has the kind.
	former := registry.Kinds
	registry.Kinds = append(former[:len(former):len(former)], sandcastles)
	t.Cleanup(func() { registry.Kinds = former })
	var shown []string
	for _, kind := range registry.ForUsers() {
		shown = append(shown, kind.Definition())
	}
	if text := strings.Join(shown, " "); !strings.Contains(text, sandcastles.Definition()) {
		t.Errorf("`get all` lists %s, want %s among them", text, sandcastles.Definition())
	}

	var said bytes.Buffer
	if err := runUninstallGuard(t.Context(), []string{"--kubeconfig=" + i.kubeconfig}, &said); !errors.Is(err, uninstall.ErrInUse) ||
		!strings.Contains(said.String(), "default/small") {
		t.Errorf("uninstalling while there is a sandcastle: got %v, want it refused; it says\n%s", err, said.String())
	}
	patch := []byte(`{"metadata":{"finalizers":["` + sandcastleFinalizer + `"]}}`)
	if err := i.kube.Patch(t.Context(), small, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	if err := manager.process.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-manager.ended; err != nil {
		t.Errorf("the manager ended: %v", err)
	}
	if err := runUninstallGuard(t.Context(), []string{"--kubeconfig=" + i.kubeconfig, "--refuse=false"}, &said); err != nil {
		t.Fatalf("uninstalling in any case: %v; it says\n%s", err, said.String())
	}
	if err := i.kube.Get(t.Context(), client.ObjectKeyFromObject(small), small); err != nil {
		t.Fatal(err)
	}
	if finalizers := small.GetFinalizers(); len(finalizers) > 0 {
		t.Errorf("finalizers after the uninstallation: got %v, want none", finalizers)
	}
}
