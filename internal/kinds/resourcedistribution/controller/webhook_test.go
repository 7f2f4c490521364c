package controller

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// trial is an API server that answers dry runs of copies.
type trial struct {
	client.Writer
	answer error
	asked  []string
}

// Create implements client.Writer.
func (w *trial) Create(_ context.Context, object client.Object, options ...client.CreateOption) error {
	asked := (&client.CreateOptions{}).ApplyOptions(options)
	document, ok := object.(*unstructured.Unstructured)
	if len(asked.DryRun) != 1 || !ok || len(object.GetOwnerReferences()) != 1 || object.GetOwnerReferences()[0].UID == "" {
		return errors.New("no dry run of a copy")
	}
	w.asked = append(w.asked, document.GetKind()+" "+object.GetNamespace()+"/"+object.GetName())
	return w.answer
}

func distributionJSON(version, selector, spec string) string {
	return `{"apiVersion":"apps.kruise.io/` + version + `","kind":"ResourceDistribution","metadata":{"name":"a","uid":"u"},"spec":{"targets":{"` + selector +
		`":{"matchLabels":{"a":"b"}}},"resource":` + spec + `}}`
}

const goodSecret = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"k":"dg=="}}`

func distributionRequest(operation admissionv1.Operation, object, old string) admission.Request {
	r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: operation, Name: "a",
		Kind: metav1.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "ResourceDistribution"}, Object: runtime.RawExtension{Raw: []byte(object)}}}
	if old != "" {
		r.OldObject.Raw = []byte(old)
	}
	return r
}

// RD-034, RD-039, RD-111: the API server is asked once for each resource, in the manager's namespace and
// without storing it; its answers, and what is found before it is asked, become those of the webhook, in both
// versions.
func TestDistributionsAreJudged(t *testing.T) {
	secrets := schema.GroupResource{Resource: "secrets"}
	for name, c := range map[string]struct {
		object, old string
		answer      error
		code        int32
		text        string
		asked       int
	}{
		"taken":               {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), code: 200, asked: 1},
		"taken in v1alpha1":   {object: distributionJSON("v1alpha1", "namespaceLabelSelector", goodSecret), code: 200, asked: 1},
		"there already":       {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), answer: apierrors.NewAlreadyExists(secrets, "s"), code: 200, asked: 1},
		"invalid":             {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), answer: apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "s", nil), code: 422, text: "spec.resource: Secret", asked: 1},
		"a bad request":       {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), answer: apierrors.NewBadRequest("strange"), code: 422, text: "spec.resource: strange", asked: 1},
		"forbidden":           {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), answer: apierrors.NewForbidden(secrets, "s", errors.New("policy")), code: 403, text: "policy", asked: 1},
		"any other error":     {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), answer: errors.New("refused connection"), code: 500, text: "refused connection", asked: 1},
		"faults, all at once": {object: distributionJSON("v1beta1", "namespaceSelector", `{"kind":"Pod"}`)[:10] + strings.ReplaceAll(distributionJSON("v1beta1", "namespaceSelector", `{"kind":"Pod"}`)[10:], `"a":"b"`, `"a b":"b"`), code: 422, text: "namespaceSelector"},
		"a fault in v1alpha1": {object: strings.ReplaceAll(distributionJSON("v1alpha1", "namespaceLabelSelector", goodSecret), `"a":"b"`, `"a b":"b"`), code: 422, text: "spec.targets.namespaceLabelSelector"},
		"undecodable":         {object: `{"apiVersion":"apps.kruise.io/v1beta1","spec":{"targets":7}}`, code: 400},
		"metadata only":       {object: distributionJSON("v1beta1", "namespaceSelector", `{"kind":"Pod"}`), old: distributionJSON("v1beta1", "namespaceSelector", `{"kind":"Pod"}`), code: 200},
		"targets only":        {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), old: distributionJSON("v1beta1", "other", goodSecret), code: 200},
		"other data":          {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), old: distributionJSON("v1beta1", "namespaceSelector", strings.ReplaceAll(goodSecret, "dg", "eA")), code: 200, asked: 1},
		"an old fault stays":  {object: distributionJSON("v1beta1", "namespaceSelector", `{"kind":"Pod"}`), old: distributionJSON("v1beta1", "other", `{"kind":"Pod"}`), code: 200},
		"another name":        {object: distributionJSON("v1beta1", "namespaceSelector", goodSecret), old: distributionJSON("v1beta1", "namespaceSelector", strings.ReplaceAll(goodSecret, `"s"`, `"r"`)), code: 422, text: "immutable"},
	} {
		server := &trial{answer: c.answer}
		hooks := ResourceDistributions(&framework.Environment{Namespace: "sys", Writer: server})
		operation := admissionv1.Create
		if c.old != "" {
			operation = admissionv1.Update
		}
		got := hooks.Validate(t.Context(), distributionRequest(operation, c.object, c.old))
		code, text := int32(200), ""
		if !got.Allowed {
			code, text = got.Result.Code, got.Result.Message
		}
		if code != c.code {
			t.Errorf("%s: got code %d, want %d: %s", name, code, c.code, text)
		}
		if !strings.Contains(text, c.text) {
			t.Errorf("%s: got %q, want %q in it", name, text, c.text)
		}
		if len(server.asked) != c.asked {
			t.Errorf("%s: the API server was asked for %v, want %d", name, server.asked, c.asked)
		} else if c.asked == 1 && server.asked[0] != "Secret sys/s" {
			t.Errorf("%s: the API server was asked for %v, want Secret sys/s", name, server.asked)
		}
	}
	hooks := ResourceDistributions(&framework.Environment{Writer: &trial{}})
	if hooks.Mutate != nil {
		t.Error("something is defaulted")
	}
	if hooks.Protects != framework.Unprotected {
		t.Error("deletions are checked")
	}
	warned := hooks.Validate(t.Context(), distributionRequest(admissionv1.Create,
		strings.Replace(distributionJSON("v1beta1", "namespaceSelector", goodSecret), `"targets":{`, `"targets":{"includedNamespaces":{"list":[{"name":"kube-system"}]},`, 1), ""))
	if !warned.Allowed { // RD-037
		t.Errorf("a distribution to kube-system: %+v", warned.Result)
	} else if len(warned.Warnings) != 1 {
		t.Errorf("a distribution to kube-system: got warnings %q, want one", warned.Warnings)
	}
}

// RD-020 (part): without the gate creations and updates are refused with 403, and the gate's name.
func TestDistributionsAreRefusedWithoutTheGate(t *testing.T) {
	kind := framework.Kind{Group: "apps.kruise.io", Name: "ResourceDistribution", Gates: framework.Gates{{features.ResourceDistributionGate}}, Webhooks: ResourceDistributions}
	for list, code := range map[string]int32{"": 403, "ResourceDistributionGate=true": 200} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Fatal(err)
		}
		handlers := kind.Handlers(&framework.Environment{Gates: gates, Writer: &trial{}})
		good := distributionJSON("v1beta1", "namespaceSelector", goodSecret)
		for _, request := range []admission.Request{distributionRequest(admissionv1.Create, good, ""),
			distributionRequest(admissionv1.Update, good, strings.ReplaceAll(good, "matchLabels", "x"))} {
			got := handlers["/validate-apps-kruise-io-resourcedistribution"].Handle(t.Context(), request)
			if want := code == 200; got.Allowed != want {
				t.Errorf("%q: allowed %t, want %t: %+v", list, got.Allowed, want, got.Result)
			} else if !want && got.Result.Code != http.StatusForbidden {
				t.Errorf("%q: refused with %+v, want code 403", list, got.Result)
			} else if !want && !strings.Contains(got.Result.Message, "ResourceDistributionGate") {
				t.Errorf("%q: refused with %q, want the gate in it", list, got.Result.Message)
			}
		}
	}
}

// RD-110: round trips lose nothing, fields that only one version knows included; renamed are the selector and
// the namespaces of conditions.
func TestConversionOfDistributions(t *testing.T) {
	conversion := framework.Between((*appsv1alpha1.ResourceDistribution).ToV1beta1, appsv1alpha1.ResourceDistributionFromV1beta1, RenamedInResourceDistributions)
	const rest = `"allNamespaces":true,"includedNamespaces":{"list":[{"name":"x","newer":1}]},"excludedNamespaces":{"list":[{"name":"y"}]}`
	alphaText := `{"apiVersion":"apps.kruise.io/v1alpha1","kind":"ResourceDistribution","metadata":{"name":"a","annotations":{"k":"v"}},"spec":{"resource":` + goodSecret +
		`,"targets":{` + rest + `,"namespaceLabelSelector":{"matchLabels":{"a":"b"},"newer":true}}},
"status":{"desired":1,"failed":1,"conditions":[{"type":"ConflictOccurred","status":"True","reason":"r","lastTransitionTime":"2020-01-01T00:00:00Z","failedNamespace":["x"]}]}}`
	betaText := strings.NewReplacer("v1alpha1", "v1beta1", "namespaceLabelSelector", "namespaceSelector", "failedNamespace", "failedNamespaces").Replace(alphaText)
	group := schema.GroupVersion{Group: "apps.kruise.io"}
	for _, c := range [][2]string{{alphaText, betaText}, {betaText, alphaText}} {
		from, to := framework.V1alpha1, framework.V1beta1
		if strings.Contains(c[0], "/v1beta1") {
			from, to = framework.V1beta1, framework.V1alpha1
		}
		got, err := conversion[[2]string{from, to}]([]byte(c[0]), schema.GroupVersionKind{Group: group.Group, Version: to, Kind: "ResourceDistribution"})
		if err != nil {
			t.Fatal(err)
		}
		want, err := framework.DecodeDocument([]byte(c[1]))
		if err != nil {
			t.Fatal(err)
		}
		document, err := framework.DecodeDocument(got)
		if err != nil {
			t.Errorf("reading what was converted: %v", err)
		}
		if !framework.SameJSON(document, want) {
			t.Errorf("converted: got\n%s\nwant\n%s", got, c[1])
		}
	}
}
