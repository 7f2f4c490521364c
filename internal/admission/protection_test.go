package admission

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"

	"github.com/afloat-project/afloat/internal/admission/protection"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
	"github.com/afloat-project/afloat/internal/reconcile"
)

// guardOf is a guard with the gates of the list.
func guardOf(t *testing.T, list string) *protection.Guard {
	t.Helper()
	lines, err := protectionlog.Open(t.TempDir(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	teller := protection.NewTeller(reconcile.NewRecorder(events.NewFakeRecorder(100)), lines, logr.Discard(), time.Now)
	return protection.New(webhooktest.Gates(t, list), nil, teller)
}

// DP-030: the shipped entries for built-in kinds: their names, paths, rules and selectors. They fail closed
// (DP-032 (part)).
func TestShippedEntriesForProtectedKinds(t *testing.T) {
	var shipped admissionv1.ValidatingWebhookConfiguration
	read(t, "../../config/webhook/validating.yaml", &shipped)
	got := map[string]string{}
	for _, hook := range shipped.Webhooks {
		path := *hook.ClientConfig.Service.Path
		rule := hook.Rules[0]
		if strings.HasSuffix(rule.APIGroups[0], ".kruise.io") || path == validatePodPath {
			continue
		}
		got[hook.Name] = fmt.Sprint(path, rule.Operations, rule.APIGroups, rule.APIVersions, rule.Resources, *rule.Scope)
		objects, err := metav1.LabelSelectorAsSelector(hook.ObjectSelector)
		if err != nil {
			t.Fatal(err)
		}
		namespaces, err := metav1.LabelSelectorAsSelector(hook.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		in := func(name string) bool { return namespaces.Matches(labels.Set{"kubernetes.io/metadata.name": name}) }
		for key, want := range map[string]bool{"app": false, "policy.kruise.io/delete-protection": true} {
			if got := objects.Matches(labels.Set{key: "x"}); got != want {
				t.Errorf("%s: an object with label %s matches: got %t, want %t: %s", hook.Name, key, got, want, objects)
			}
		}
		for name, want := range map[string]bool{"kube-system": false, "kruise-system": true, "shop": true} {
			if in(name) != want {
				t.Errorf("%s: namespace %s matches: got %t, want %t: %s", hook.Name, name, !want, want, namespaces)
			}
		}
		if *hook.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s: failure policy %s, want Fail", hook.Name, *hook.FailurePolicy)
		}
		if *hook.SideEffects != admissionv1.SideEffectClassNoneOnDryRun {
			t.Errorf("%s: side effects %s, want NoneOnDryRun", hook.Name, *hook.SideEffects)
		}
		if *hook.MatchPolicy != admissionv1.Equivalent {
			t.Errorf("%s: match policy %s, want Equivalent", hook.Name, *hook.MatchPolicy)
		}
		if *hook.TimeoutSeconds != 30 {
			t.Errorf("%s: timeout %d s, want 30 s", hook.Name, *hook.TimeoutSeconds)
		}
		if len(hook.Rules) != 1 {
			t.Errorf("%s: rules %+v, want one", hook.Name, hook.Rules)
		}
		if len(hook.MatchConditions) != 1 {
			t.Errorf("%s: conditions %+v, want one", hook.Name, hook.MatchConditions)
		}
	}
	if diff := cmp.Diff(map[string]string{
		"vbuiltindeployment.kb.io":  "/validate-apps-deployment[DELETE] [apps] [v1] [deployments]Namespaced",
		"vbuiltinreplicaset.kb.io":  "/validate-apps-replicaset[DELETE] [apps] [v1] [replicasets]Namespaced",
		"vbuiltinstatefulset.kb.io": "/validate-apps-statefulset[DELETE] [apps] [v1] [statefulsets]Namespaced",
		"vcustomresourcedefinition.kb.io": "/validate-customresourcedefinition[DELETE] [apiextensions.k8s.io] [v1 v1beta1] " +
			"[customresourcedefinitions]Cluster",
		"vnamespace.kb.io": "/validate-namespace[DELETE] [] [v1] [namespaces]Cluster",
		"vservice.kb.io":   "/validate-service[DELETE] [] [v1] [services]Namespaced",
		"vingress.kb.io":   "/validate-ingress[DELETE] [networking.k8s.io] [v1 v1beta1] [ingresses]Namespaced",
	}, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

// DP-002: without the gate, which needs no PodWebhook, all deletions are allowed.
// DP-D1 (part): nor does the manager then know the entries, so that the leader drops them.
func TestProtectionWithItsGate(t *testing.T) {
	for list, on := range map[string]bool{"": true, "PodWebhook=false": true, "ResourcesDeletionProtection=false": false} {
		options := ofRegistry(t, list)
		handlers := fitting(options.handlers(&framework.Environment{Gates: options.Gates}, nil, nil))
		options.CertDir = filepath.Join(t.TempDir(), "certs")
		paths := options.keeper(handlers).Paths
		for _, kind := range protection.Kinds {
			answer := webhooktest.Review(t, handlers[kind.Path], "DELETE", "",
				`{"metadata":{"name":"web","labels":{"policy.kruise.io/delete-protection":"Always"}}}`)
			known, ok := paths[kind.Path]
			if answer.Allowed == on {
				t.Errorf("%q, %s: allowed %t, want %t", list, kind.Name, answer.Allowed, !on)
			}
			if !ok || known != on {
				t.Errorf("%q, %s: an entry is kept: got %t, want %t", list, kind.Name, known, on)
			}
		}
		for _, path := range []string{validateCloneSetPath, validateStatefulSetPath, validateDaemonSetPath} {
			answer := webhooktest.Review(t, handlers[path], "DELETE", "",
				`{"metadata":{"name":"web","labels":{"policy.kruise.io/delete-protection":"Always"}}}`)
			if answer.Allowed == on {
				t.Errorf("%q, %s: allowed %t, want %t", list, path, answer.Allowed, !on)
			}
			if !paths[path] {
				t.Errorf("%q, %s: the entry is not kept", list, path)
			}
		}
	}
}
