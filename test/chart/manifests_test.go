package chart_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"text/template/parse"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"

	"github.com/afloat-project/afloat/config"
)

func manifests(t *testing.T, path string, edit func(string) string) objects {
	t.Helper()
	text, err := config.Folder(path)
	if err != nil {
		t.Fatal(err)
	}
	all := objects{}
	if err := all.add([]byte(edit(string(text)))); err != nil {
		t.Fatal(err)
	}
	return all
}

// unbound is a role that config/default has, and does not bind; the chart has it with its gate alone
// (RD-021).
const unbound = "- ClusterRole kruise-manager-resourcedistribution-role"

func unchanged(text string) string { return text }

// plain are values with which the chart has nothing that only Helm knows.
const plain = `
featureGates: ""
installation: {keepNamespace: false}
crds: {keep: false}
helmHooks: {enabled: false}
`

// OPS-122 (TestTemplatesUseFunctionsOfHelm35 has the rest), OPS-104 (part), OPS-103 (TestHelmOnRealKubelets
// applies it again): the chart installs what config/default does, object by object, without asking a cluster.
// Besides it has the Secret, without data, so that applying it again does not take the certificates away.
func TestTheChartIsTheManifests(t *testing.T) {
	c := load(t)
	rendered := mustRender(t, c, plain)
	if diff := cmp.Diff([]string{"+ Secret kruise-system kruise-webhook-certs", unbound}, difference(manifests(t, "../../config/default", unchanged), rendered)); diff != "" {
		t.Error(diff)
	}
	secret := rendered["Secret kruise-system kruise-webhook-certs"]
	want := map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "kruise-webhook-certs", "namespace": "kruise-system",
		"annotations": map[string]any{"helm.sh/resource-policy": "keep"}}}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Error(diff)
	}
	var kept []string // definitions stay, unless values say otherwise
	for key := range mustRender(t, c, "crds: {managed: true}") {
		if strings.HasPrefix(key, "CustomResourceDefinition ") {
			kept = append(kept, key+" metadata.annotations.helm.sh/resource-policy: none -> keep")
		}
	}
	if len(kept) < 10 {
		t.Fatal(kept)
	}
	kept = append(kept, "Namespace kruise-system metadata.annotations: none -> {helm.sh/resource-policy:keep}",
		"Deployment kruise-system kruise-controller-manager spec.template.spec.containers.manager.args: [--v=3] -> [--v=3,--feature-gates=ImagePullJobGate=true]",
		"DaemonSet kruise-system kruise-daemon spec.template.spec.containers.daemon.args: [--v=4,--addr=:10221] -> [--v=4,--feature-gates=ImagePullJobGate=true,--addr=:10221]",
		"+ ServiceAccount kruise-system kruise-helm-hook", "+ ClusterRole kruise-helm-hook", "+ ClusterRoleBinding kruise-helm-hook",
		"+ Job kruise-system kruise-finalizer")
	if diff := cmp.Diff(sorted(kept), difference(rendered, mustRender(t, c, ""))); diff != "" {
		t.Error(diff)
	}
}

// OPS-051, OPS-052: with external certificates, in either spelling, the chart installs what
// config/external-certs does; without cert-manager's objects there are the annotations of the user, on both
// configurations and on all definitions that are converted, and no Secret.
func TestExternalCertificatesInstallWhatTheManifestsDo(t *testing.T) {
	c := load(t)
	want := manifests(t, "../../config/external-certs", unchanged)
	annotated := 0
	for _, list := range []string{"EnableExternalCerts=true", "AllAlpha=true"} {
		values := strings.Replace(plain, `""`, `"`+list+`"`, 1)
		got := mustRender(t, c, values+"externalCerts: {certManager: {enabled: true}}")
		var others []string
		for _, line := range difference(want, got) {
			switch {
			case line == unbound, strings.Contains(line, ".args"), // the daemon is told too, and the list is what the user wrote
				// Only converted definitions carry an authority.
				(strings.HasPrefix(line, "CustomResourceDefinition image") || strings.HasPrefix(line, "CustomResourceDefinition broadcastjobs") ||
					strings.HasPrefix(line, "CustomResourceDefinition ephemeraljobs") || strings.HasPrefix(line, "CustomResourceDefinition podprobemarkers") ||
					strings.HasPrefix(line, "CustomResourceDefinition nodepodprobes")) && strings.Contains(line, "inject-ca-from: kruise-system/kruise-webhook-certs -> none"),
				list == "AllAlpha=true" && strings.Contains(line, "kruise-manager-definitions-role"): // another gate
			default:
				others = append(others, line)
			}
		}
		if len(others) > 0 {
			t.Errorf("%s:\n%s", list, strings.Join(others, "\n"))
		}
		theirs := mustRender(t, c, values+"externalCerts: {annotations: {example.com/inject: here}}")
		for key, object := range theirs {
			if strings.HasPrefix(key, "Issuer") || strings.HasPrefix(key, "Certificate") || strings.HasPrefix(key, "Secret") {
				t.Errorf("%s: there is %s", list, key)
			}
			annotations, _ := object["metadata"].(map[string]any)["annotations"].(map[string]any)
			spec, _ := object["spec"].(map[string]any)
			wants := strings.Contains(key, "WebhookConfiguration") || spec["conversion"] != nil
			if has := annotations["example.com/inject"] == "here"; has != wants {
				t.Errorf("%s: %s: %v", list, key, annotations)
			} else if has {
				annotated++
			}
		}
	}
	if annotated != 2*(2+12) {
		t.Errorf("%d objects are annotated", annotated)
	}
}

// OPS-010 (part), OPS-011, OPS-012: any namespaces work, everywhere where objects name them, and pods of the
// install namespace are excluded by its name. The namespace may be somebody else's.
func TestAnyNamespace(t *testing.T) {
	c := load(t)
	want := manifests(t, "../../config/default", func(text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(text, "kruise-daemon-config", "copies"), "kruise-system", "workloads")
	})
	got := mustRender(t, c, strings.Replace(plain, "keepNamespace", "namespace: workloads, daemonConfigNamespace: copies, keepNamespace", 1))
	if diff := cmp.Diff([]string{"+ Secret workloads kruise-webhook-certs", unbound,
		"Deployment workloads kruise-controller-manager spec.template.spec.containers.manager.args: [--v=3] -> [--v=3,--leader-election-namespace=workloads]",
		"Deployment workloads kruise-controller-manager spec.template.spec.containers.manager.env: [{name:POD_NAMESPACE,valueFrom:{fieldRef:{fieldPath:metadata.namespace}}},{name:GOMEMLIMIT,value:900MiB}]" +
			" -> [{name:POD_NAMESPACE,valueFrom:{fieldRef:{fieldPath:metadata.namespace}}},{name:GOMEMLIMIT,value:900MiB},{name:KRUISE_DAEMON_CONFIG_NS,value:copies}]",
	}, difference(want, got)); diff != "" {
		t.Error(diff)
	}
	encoded, err := json.Marshal(mustRender(t, c, "installation: {namespace: workloads, daemonConfigNamespace: copies, createNamespace: false}"))
	if err != nil || bytes.Contains(encoded, []byte("kruise-system")) || bytes.Contains(encoded, []byte("kruise-daemon-config")) ||
		bytes.Contains(encoded, []byte(`"Namespace workloads"`)) {
		t.Errorf("a name is left, or the namespace is made: %v", err)
	}
	if !bytes.Contains(encoded, []byte(`"values":["kube-system","workloads"]`)) {
		t.Error("pods of the install namespace are not excluded")
	}
}

// Helm's own checks find nothing.
func TestHelmFindsNoFault(t *testing.T) {
	result := lint.RunAll(folder, nil, "default")
	for _, message := range result.Messages {
		if message.Severity > support.InfoSev {
			t.Error(message)
		}
	}
}

// What Helm stores for each revision, the chart with what it renders, stays far below the 1 MiB that a Secret
// may have.
func TestReleaseRecordIsSmall(t *testing.T) {
	c := load(t)
	manifest, err := json.Marshal(mustRender(t, c, ""))
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"chart": c, "manifest": string(manifest)})
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if _, err := zip.Write(record); err != nil || zip.Close() != nil {
		t.Fatal(err)
	}
	size := base64.StdEncoding.EncodedLen(packed.Len())
	t.Logf("%d bytes", size)
	if size > 400<<10 {
		t.Errorf("%d bytes", size)
	}
}

// OPS-122 (part): the templates use functions that Helm 3.5 has, with sprig 3.2, and no others.
func TestTemplatesUseFunctionsOfHelm35(t *testing.T) {
	known := strings.Fields("and append concat deepCopy default dict dig dir div eq fail first float64 fromYaml get has hasKey hasPrefix include int int64 isAbs join kindIs list merge min mulf " +
		"ne nindent not or printf regexFind regexMatch replace rest set splitList ternary toString toYaml trim trimPrefix tuple unset")
	for _, file := range load(t).Templates {
		tree := parse.New(file.Name)
		tree.Mode = parse.SkipFuncCheck
		trees := map[string]*parse.Tree{}
		if _, err := tree.Parse(string(file.Data), "", "", trees); err != nil {
			t.Fatal(err)
		}
		for _, tree := range trees {
			for _, action := range regexp.MustCompile(`(?s)\{\{.*?\}\}`).FindAllString(tree.Root.String(), -1) {
				action = regexp.MustCompile(`"[^"]*"`).ReplaceAllString(action, "")
				for _, word := range regexp.MustCompile(`(?:^|[\s({|])([a-zA-Z][a-zA-Z0-9]*)`).FindAllStringSubmatch(action, -1) {
					if !slices.Contains(append(known, "if", "else", "end", "range", "with", "template", "define", "true", "false"), word[1]) {
						t.Errorf("%s: %s in %s", file.Name, word[1], action)
					}
				}
			}
		}
	}
}
