package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/kinds/statefulset"
)

// statefulSets are the webhooks with all gates on, in a cluster with one storage class, and the number of
// times that classes were listed.
func statefulSets(t *testing.T, server *webhooktest.APIServer, fails error) (w *statefulSetWebhooks, listed *int) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := storagev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	no, count := false, 0
	classes := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "fixed",
		Annotations: map[string]string{statefulset.DefaultClassAnnotation: "true"}}, AllowVolumeExpansion: &no}).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if count++; fails != nil {
				return fails
			}
			return c.List(ctx, list, opts...)
		}}).Build()
	return &statefulSetWebhooks{Templates: framework.Templates{Validator: server.Validator(t), Complete: true}, live: classes,
		gates: statefulset.Gates{AutoDeletePVC: true, AutoResizePVC: true, StartOrdinal: true}}, &count
}

// ASTS-019 (part): the template is completed on create, and on update only when it changed; a main container
// without policy is always pulled. Without an answer of the API server there is a warning.
func TestTemplatesOfStatefulSetsAreCompleted(t *testing.T) {
	completes := func(template framework.Document) (int, any) {
		template["spec"].(framework.Document)["restartPolicy"] = "Always"
		return 201, framework.Document{"template": template}
	}
	other := strings.Replace(webhooktest.StatefulSet("v1beta1", "", ""), `"image":"i"`, `"image":"j"`, 1)
	for name, test := range map[string]struct {
		old      string
		answer   func(framework.Document) (int, any)
		has      bool
		warnings int
	}{
		"create":             {answer: completes, has: true},
		"changed":            {old: strings.Replace(other, `"spec":{"containers"`, `"spec":{"restartPolicy":"Always","containers"`, 1), answer: completes, has: true},
		"unchanged":          {old: webhooktest.StatefulSet("v1beta1", "", `"serviceName":"s"`), answer: completes},
		"nobody to complete": {answer: webhooktest.Answers(500, "", "trouble"), warnings: 1},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := statefulSets(t, &webhooktest.APIServer{Answer: test.answer}, nil)
			operation := admissionv1.Create
			if test.old != "" {
				operation = admissionv1.Update
			}
			got := webhooktest.Review(t, admission.HandlerFunc(w.mutate), operation, webhooktest.StatefulSet("v1beta1", "", ""), test.old)
			if !got.Allowed {
				t.Errorf("admission: %+v", got.Result)
			}
			if has := strings.Contains(string(got.Patch), `"/spec/template/spec/restartPolicy"`); has != test.has {
				t.Errorf("the template is completed: got %t, want %t: %s", has, test.has, got.Patch)
			}
			if len(got.Warnings) != test.warnings {
				t.Errorf("warnings: got %q, want %d", got.Warnings, test.warnings)
			}
			if pulls := strings.Contains(string(got.Patch), "imagePullPolicy"); pulls != (test.old == "") {
				t.Errorf("pull policy %v: %s", pulls, got.Patch)
			}
			if name == "unchanged" && strings.Contains(string(got.Patch), "template") {
				t.Errorf("the template that stays is changed: %s", got.Patch)
			}
		})
	}
}

// ASTS-017 (part), ASTS-018 (part), ASTS-023 (part): the gates reach the defaults, in either version.
func TestGatesOfStatefulSets(t *testing.T) {
	for _, on := range []bool{true, false} {
		e := &framework.Environment{Gates: webhooktest.Gates(t, fmt.Sprintf("StatefulSetAutoDeletePVC=%[1]t,StatefulSetAutoResizePVCGate=%[1]t,TemplateNoDefaults=true", on))}
		for _, version := range []string{"v1alpha1", "v1beta1"} {
			got := webhooktest.Review(t, StatefulSets(e).Mutate, "CREATE", webhooktest.StatefulSet(version, "", ""), "")
			if strings.Contains(string(got.Patch), "/spec/template") { // ASTS-019 (part)
				t.Errorf("gate TemplateNoDefaults: %s", got.Patch)
			}
			for _, part := range []string{"Retain", "OnDelete"} {
				if has := strings.Contains(string(got.Patch), part); has != on {
					t.Errorf("gate %t, %s: %s in the patch: got %t: %s", on, version, part, has, got.Patch)
				}
				want := on && version == "v1alpha1"
				if has := strings.Contains(string(got.Patch), "v1beta1-only-fields"); has != want {
					t.Errorf("gate %t, %s: fields of v1beta1 alone: got %t, want %t: %s", on, version, has, want, got.Patch)
				}
			}
		}
	}
}

// Whatever part finds a fault, the refusal has it, with 422, and the fields of the version that the user
// wrote.
func TestARefusalOfAStatefulSetNamesAllFaults(t *testing.T) {
	w, _ := statefulSets(t, &webhooktest.APIServer{Answer: webhooktest.Answers(422, metav1.StatusReasonInvalid, "bad",
		metav1.StatusCause{Type: "FieldValueRequired", Field: "template.spec.containers[0].image", Message: "Required value"})}, nil)
	const inSpec = `"revisionHistoryLimit":-1`
	for version, given := range map[string]string{"v1beta1": webhooktest.StatefulSet("v1beta1", "", inSpec+`,"reserveOrdinals":["x"]`),
		"v1alpha1": webhooktest.StatefulSet("v1alpha1", webhooktest.Annotated(`{"reserveOrdinals":["x"]}`), inSpec)} {
		given = strings.Replace(given, `"revisionHistoryLimit":10,`, "", 1)
		got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", given, "")
		reserved := "spec.reserveOrdinals[0]"
		if version == "v1alpha1" {
			reserved = "metadata.annotations[apps.kruise.io/v1beta1-only-fields].reserveOrdinals[0]"
		}
		if got.Allowed {
			t.Fatalf("a bad object in %s is admitted", version)
		}
		if got.Result.Code != 422 {
			t.Fatalf("a bad object in %s: refused with %+v, want code 422", version, got.Result)
		}
		if diff := cmp.Diff([]string{"spec.revisionHistoryLimit", reserved, "spec.template.spec.containers[0].image"}, webhooktest.Fields(got)); diff != "" {
			t.Errorf("refused fields in %s (-want +got):\n%s", version, diff)
		}
	}
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "CREATE", `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"replicas":"x"}}`, ""); got.Allowed || got.Result.Code != 422 {
		t.Errorf("wrong types: got %+v, want code 422", got.Result)
	}
}

// An update of metadata is not judged, unless it changes the annotation that is a part of the spec.
func TestTheAnnotationIsJudgedLikeTheSpec(t *testing.T) {
	w, _ := statefulSets(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, nil)
	old := webhooktest.StatefulSet("v1alpha1", `"finalizers":["x"],`+webhooktest.Annotated(`{"reserveOrdinals":["x"]}`), "")
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", strings.Replace(old, `["x"]`, `[]`, 1), old); !got.Allowed {
		t.Errorf("the last finalizer: %+v", got.Result)
	}
	worse := webhooktest.StatefulSet("v1alpha1", webhooktest.Annotated(`{"reserveOrdinals":["x","y"]}`), "")
	if got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", worse, old); got.Allowed {
		t.Error("another bad ordinal in the annotation is admitted")
	} else if !strings.Contains(got.Result.Message, `reserveOrdinals[1]`) {
		t.Errorf("another bad ordinal: refused with %q, want its field in it", got.Result.Message)
	}
}

// ASTS-054 (part): storage classes are listed only if the size of a claim changes, and once, however many
// claims there are. Where they cannot be listed, the answer says that trying again may help.
func TestStorageClassesAreListedWhenSizesChange(t *testing.T) {
	of := func(size string, class string) string {
		var claims []string
		for i := range 20 {
			claims = append(claims, fmt.Sprintf(`{"metadata":{"name":"c%d"},"spec":{%s"resources":{"requests":{"storage":"%s"}}}}`, i, class, size))
		}
		return webhooktest.StatefulSet("v1beta1", "", `"volumeClaimUpdateStrategy":{"type":"OnPodRollingUpdate"},"volumeClaimTemplates":[`+strings.Join(claims, ",")+`]`)
	}
	for name, test := range map[string]struct {
		updated string
		fails   error
		listed  int
		code    int32
		says    string
	}{
		"nothing":     {updated: strings.Replace(of("1Gi", ""), `"replicas":1`, `"replicas":2`, 1)},
		"the default": {updated: of("2Gi", ""), listed: 1, code: 422, says: `storage class "fixed" does not have allowVolumeExpansion: true`},
		"gone":        {updated: of("2Gi", `"storageClassName":"gone",`), listed: 1, code: 422, says: "there is no such storage class"},
		"trouble":     {updated: of("2Gi", ""), fails: errors.New("trouble"), listed: 1, code: 500, says: "trouble"},
	} {
		t.Run(name, func(t *testing.T) {
			w, listed := statefulSets(t, &webhooktest.APIServer{Answer: webhooktest.Accepts}, test.fails)
			got := webhooktest.Review(t, admission.HandlerFunc(w.validate), "UPDATE", test.updated, of("1Gi", ""))
			if want := test.code == 0; got.Allowed != want {
				t.Fatalf("allowed %t, want %t: %+v", got.Allowed, want, got.Result)
			}
			if *listed != test.listed {
				t.Fatalf("claims were listed %d times, want %d", *listed, test.listed)
			}
			if !got.Allowed && got.Result.Code != test.code {
				t.Errorf("refused with %+v, want code %d", got.Result, test.code)
			}
			if !got.Allowed && !strings.Contains(got.Result.Message, test.says) {
				t.Errorf("refused with %q, want %q in it", got.Result.Message, test.says)
			}
		})
	}
}
