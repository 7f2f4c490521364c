package admission

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

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
		options, handlers := ofRegistry(t, list), protectedHandlers(t, list)
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

// CS-034: deletion of a protected CloneSet, with the gate.
func TestAProtectedCloneSetIsNotDeleted(t *testing.T) {
	labelled := func(label, replicas, more string) string {
		return `{"apiVersion":"apps.kruise.io/v1alpha1","metadata":{"name":"web"` + more +
			`,"labels":{"policy.kruise.io/delete-protection":"` + label + `"}},"spec":{"replicas":` + replicas + `}}`
	}
	cases := map[string]struct {
		old     string
		off     bool
		refused string
	}{
		"no label":               {old: webhooktest.CloneSet("v1beta1", webhooktest.GoodTemplate, "")},
		"another value":          {old: labelled("never", "1", "")},
		"Always":                 {old: labelled("Always", "0", ""), refused: "delete-protection=Always: remove the label"},
		"Always, gate off":       {old: labelled("Always", "0", ""), off: true},
		"Always, terminating":    {old: labelled("Always", "1", `,"deletionTimestamp":"2026-01-02T03:04:05Z"`)},
		"Cascading with pods":    {old: labelled("Cascading", "2", ""), refused: "replicas 2>0: scale to 0"},
		"Cascading without pods": {old: labelled("Cascading", "0", "")},
		"Cascading, no number":   {old: labelled("Cascading", "null", "")},
		"no object":              {old: ""},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			list := fmt.Sprintf("ResourcesDeletionProtection=%t", !test.off)
			handlers := protectedHandlers(t, list)
			got := webhooktest.Review(t, handlers["/validate-apps-kruise-io-cloneset"], "DELETE", "", test.old)
			if got.Allowed != (test.refused == "") ||
				!got.Allowed && (got.Result.Code != 403 || !strings.Contains(got.Result.Message, test.refused)) {
				t.Errorf("deletion: got %+v, want 403 with %q, or allowed", got.Result, test.refused)
			}
		})
	}
}

// ASTS-060: deletion of a protected set is refused with the gate, in words that name the set, unless it is
// being deleted already.
func TestDeletionProtectionOfStatefulSets(t *testing.T) {
	const going = `"deletionTimestamp":"2026-01-02T03:04:05Z",`
	for _, on := range []bool{true, false} {
		list := fmt.Sprintf("ResourcesDeletionProtection=%t", on)
		handlers := protectedHandlers(t, list)
		for _, test := range []struct {
			label, replicas, more string
			refused               bool
		}{{"Always", "1", "", true}, {"Always", "0", "", true}, {"Always", "1", going, false}, {"Cascading", "1", "", true},
			{"Cascading", "0", "", false}, {"Cascading", "1", going, false}, {"Never", "1", "", false}} {
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				old := strings.Replace(webhooktest.StatefulSet(version, test.more+`"labels":{"policy.kruise.io/delete-protection":"`+test.label+`"}`, ""),
					`"replicas":1`, `"replicas":`+test.replicas, 1)
				got := webhooktest.Review(t, handlers["/validate-apps-kruise-io-statefulset"], "DELETE", "", old)
				refused := test.refused && on
				if got.Allowed == refused {
					t.Errorf("gate %v, %+v: allowed %t, want %t: %+v", on, test, got.Allowed, !refused, got.Result)
				}
				protected := "StatefulSet shop/web is protected by label policy.kruise.io/delete-protection=" + test.label
				if refused && (got.Result.Code != 403 || !strings.HasPrefix(got.Result.Message, protected)) {
					t.Errorf("gate %v, %+v: got %+v, want code 403 and %q", on, test, got.Result, protected)
				}
			}
		}
	}
}

// ADS-033: deletion of a protected set is refused with the gate, with Cascading while it has pods on nodes
// that should have one, in words that name the set.
func TestDeletionProtectionOfDaemonSets(t *testing.T) {
	const going = `"deletionTimestamp":"2026-01-02T03:04:05Z",`
	for _, on := range []bool{true, false} {
		list := fmt.Sprintf("ResourcesDeletionProtection=%t", on)
		handlers := protectedHandlers(t, list)
		for _, test := range []struct {
			label, status, more string
			refused             bool
		}{{"Always", `{}`, "", true}, {"Always", `{"currentNumberScheduled":1}`, going, false}, {"Cascading", `{"currentNumberScheduled":1}`, "", true},
			{"Cascading", `{"currentNumberScheduled":0,"desiredNumberScheduled":5}`, "", false}, {"Cascading", `{}`, "", false},
			{"Cascading", `{"currentNumberScheduled":1}`, going, false}, {"Never", `{"currentNumberScheduled":1}`, "", false}} {
			for _, version := range []string{"v1alpha1", "v1beta1"} {
				old := strings.TrimSuffix(webhooktest.DaemonSet(version, test.more+`"labels":{"policy.kruise.io/delete-protection":"`+test.label+`"}`, ""), "}") +
					`,"status":` + test.status + `}`
				got := webhooktest.Review(t, handlers["/validate-apps-kruise-io-daemonset"], "DELETE", "", old)
				refused := test.refused && on
				if got.Allowed == refused {
					t.Errorf("gate %v, %+v: allowed %t, want %t: %+v", on, test, got.Allowed, !refused, got.Result)
				}
				protected := "DaemonSet shop/agent is protected by label policy.kruise.io/delete-protection=" + test.label
				if refused && (got.Result.Code != http.StatusForbidden || !strings.HasPrefix(got.Result.Message,
					protected)) {
					t.Errorf("gate %v, %+v: got %+v, want code 403 and %q", on, test, got.Result, protected)
				}
				if test.refused && on && test.label == "Cascading" && !strings.Contains(got.Result.Message, "currentNumberScheduled 1>0: give its template") {
					t.Errorf("message for a cascading protection: got %q, want what it counts and what to do",
						got.Result.Message)
				}
			}
		}
	}
}

// UD-055 (part): with the gate, which is on by default, label Always keeps an object, Cascading one that has
// replicas; the refusal is 403. Its metric is that of all protected kinds: see the tests of
// internal/admission/protection.
func TestDeletionProtectionOfUnitedDeployments(t *testing.T) {
	for list, gate := range map[string]bool{"": true, "ResourcesDeletionProtection=true": true, "ResourcesDeletionProtection=false": false} {
		handlers := protectedHandlers(t, list)
		for label, refused := range map[string]bool{"Always/0": true, "Always/2": true, "Cascading/2": true, "Cascading/0": false, "other/2": false} {
			value, replicas, _ := strings.Cut(label, "/")
			got := webhooktest.Review(t, handlers["/validate-apps-kruise-io-uniteddeployment"], "DELETE", "", `{"metadata":{"name":"web","labels":{"policy.kruise.io/delete-protection":"`+value+`"}},"spec":{"replicas":`+replicas+`}}`)
			if want := !refused || !gate; got.Allowed != want {
				t.Errorf("gate %t, %s: allowed %t, want %t: %+v", gate, label, got.Allowed, want, got.Result)
			} else if !want && got.Result.Code != http.StatusForbidden {
				t.Errorf("gate %t, %s: refused with %+v, want code 403", gate, label, got.Result)
			}
		}
	}
}

// protectedHandlers are the handlers of all kinds with the gates of a list.
func protectedHandlers(t *testing.T, list string) map[string]admission.Handler {
	t.Helper()
	options := ofRegistry(t, list)
	return fitting(options.handlers(&framework.Environment{Gates: options.Gates, Protect: options.protects}, nil, nil))
}

// RD-010: nothing is mutated or defaulted, and the shipped entry is the one that the reference has.
func TestShippedEntriesOfDistributions(t *testing.T) {
	mutating, err := os.ReadFile("../../config/webhook/mutating.yaml")
	if err != nil {
		t.Errorf("reading the shipped entries: %v", err)
	}
	if strings.Contains(string(mutating), "resourcedistribution") {
		t.Error("an entry for distributions is mutating")
	}
	var shipped admissionv1.ValidatingWebhookConfiguration
	read(t, "../../config/webhook/validating.yaml", &shipped)
	i := slices.IndexFunc(shipped.Webhooks, func(w admissionv1.ValidatingWebhook) bool {
		return w.Name == "vresourcedistribution.kb.io"
	})
	if i < 0 {
		t.Fatal("there is no entry for distributions")
	}
	entry := shipped.Webhooks[i]
	if path := *entry.ClientConfig.Service.Path; path != "/validate-apps-kruise-io-resourcedistribution" {
		t.Errorf("path: got %s", path)
	}
	if *entry.FailurePolicy != admissionv1.Fail {
		t.Errorf("failure policy: got %s, want Fail", *entry.FailurePolicy)
	}
	if *entry.SideEffects != admissionv1.SideEffectClassNone {
		t.Errorf("side effects: got %s, want None", *entry.SideEffects)
	}
	cluster := admissionv1.ClusterScope
	if diff := cmp.Diff([]admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		Rule: admissionv1.Rule{APIGroups: []string{"apps.kruise.io"}, APIVersions: []string{"v1alpha1", "v1beta1"},
			Resources: []string{"resourcedistributions"}, Scope: &cluster}}}, entry.Rules); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
}
