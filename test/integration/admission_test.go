//go:build integration

package integration

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CS-034, DP-031: deletion of a protected CloneSet is refused, in either version, until the label goes.
func TestAProtectedCloneSetIsNotDeleted(t *testing.T) {
	for _, version := range []string{"v1alpha1", "v1beta1"} {
		set := cloneSet(version, "protected-"+version,
			`{metadata: {labels: {policy.kruise.io/delete-protection: Cascading}}, spec: {replicas: 1}}`)
		if err := kube.Create(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if err := kube.Delete(t.Context(), set); !apierrors.IsForbidden(err) {
			t.Errorf("deletion of a protected CloneSet in %s: got %v, want it forbidden", version, err)
		}
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"policy.kruise.io/delete-protection":null}}}`))
		if err := errors.Join(kube.Patch(t.Context(), set, patch), kube.Delete(t.Context(), set)); err != nil {
			t.Errorf("%s, without the label: %v", version, err)
		}
	}
}

// OPS-042, OPS-065: the manager repairs its own entry within seconds, and does not change an unknown one.
func TestWebhookConfigurationsAreKept(t *testing.T) {
	key, path, none := types.NamespacedName{Name: "kruise-validating-webhook-configuration"}, "/validate-apps-kruise-io-unheard-of",
		admissionv1.SideEffectClassNone
	config := &admissionv1.ValidatingWebhookConfiguration{}
	change := func(do func()) { // the manager may write it meanwhile
		t.Helper()
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			if err := kube.Get(t.Context(), key, config); err != nil {
				return err
			}
			do()
			return kube.Update(t.Context(), config)
		}); err != nil {
			t.Fatal(err)
		}
	}
	var good []byte
	unknown := admissionv1.ValidatingWebhook{Name: "vunheardof.kb.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: "kruise-system",
			Name: "kruise-webhook-service", Path: &path}},
		Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"CREATE"}, Rule: admissionv1.Rule{
			APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"*"}, Resources: []string{"unheardofs"}}}}}
	change(func() {
		good, config.Webhooks[0].ClientConfig.CABundle = config.Webhooks[0].ClientConfig.CABundle, nil
		config.Webhooks = append(config.Webhooks, unknown)
	})
	err := wait(func() error {
		if err := kube.Get(t.Context(), key, config); err != nil {
			return err
		}
		last := len(config.Webhooks) - 1
		if config.Webhooks[last].Name != unknown.Name || !bytes.Equal(config.Webhooks[0].ClientConfig.CABundle, good) ||
			config.Webhooks[last].ClientConfig.CABundle != nil {
			return errors.New("not mended yet")
		}
		return nil
	})
	if err != nil {
		t.Errorf("mending the entries: %v: %+v", err, config.Webhooks)
	}
	change(func() {
		config.Webhooks = slices.DeleteFunc(config.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return w.Name == unknown.Name })
	})
}
