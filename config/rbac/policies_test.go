package rbac_test

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"
)

// judge says what the policy in a file answers to a request: "passes", "refuses", or "is not asked".
func judge(t *testing.T, file string, request, oldObject, object map[string]any) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var policy admissionv1.ValidatingAdmissionPolicy
	first, _, _ := bytes.Cut(data, []byte("\n---\n"))
	if err := yaml.UnmarshalStrict(first, &policy); err != nil {
		t.Fatal(err)
	}
	env, err := cel.NewEnv(cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("variables", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{}
	known := map[string]any{"request": request, "object": nil, "oldObject": nil, "variables": variables}
	if object != nil {
		known["object"] = object
	}
	if oldObject != nil {
		known["oldObject"] = oldObject
	}
	value := func(expression string) any {
		t.Helper()
		compiled, issues := env.Compile(expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", expression, issues.Err())
		}
		program, err := env.Program(compiled)
		if err != nil {
			t.Fatal(err)
		}
		result, _, err := program.Eval(known)
		if err != nil {
			t.Fatalf("%s: %v", expression, err)
		}
		return result.Value()
	}
	for _, condition := range policy.Spec.MatchConditions {
		if value(condition.Expression) != true {
			return "is not asked"
		}
	}
	for _, variable := range policy.Spec.Variables {
		variables[variable.Name] = value(variable.Expression)
	}
	for _, validation := range policy.Spec.Validations {
		if value(validation.Expression) != true {
			return "refuses"
		}
	}
	return "passes"
}

func object(name string, owners ...any) map[string]any {
	metadata := map[string]any{"name": name}
	if len(owners) > 0 {
		metadata["ownerReferences"] = owners
	}
	return map[string]any{"metadata": metadata}
}

// RD-021 (part), ND-136 (part), ND-145 (part): with the token of the manager nobody changes a ConfigMap or a
// Secret of somebody else, wherever it is, whether or not the gate of ResourceDistributions is on: the policy
// is part of config/default.
func TestPolicyOfTheManager(t *testing.T) {
	listed, err := os.ReadFile("kustomization.yaml")
	if err != nil || !bytes.Contains(listed, []byte("- copies.yaml\n")) {
		t.Errorf("%s %v", listed, err)
	}
	distribution := map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ResourceDistribution", "name": "d", "controller": true}
	mere := map[string]any{"apiVersion": "apps.kruise.io/v1beta1", "kind": "ResourceDistribution", "name": "d"}
	pod := map[string]any{"apiVersion": "v1", "kind": "Pod", "name": "web-0"}
	const manager = "system:serviceaccount:kruise-system:kruise-manager"
	for name, c := range map[string]struct {
		user, operation, resource, namespace string
		before, after                        map[string]any
		want                                 string
	}{
		"a barrier":                            {manager, "CREATE", "configmaps", "shop", nil, object("web-0-barrier", pod), "passes"},
		"a barrier that is released":           {manager, "UPDATE", "configmaps", "shop", object("web-0-barrier", pod), object("web-0-barrier", pod), "passes"},
		"a barrier under another name":         {manager, "CREATE", "configmaps", "shop", nil, object("settings", pod), "refuses"},
		"a barrier that is a Secret":           {manager, "CREATE", "secrets", "shop", nil, object("web-0-barrier", pod), "refuses"},
		"a barrier that goes":                  {manager, "DELETE", "configmaps", "shop", object("web-0-barrier", pod), nil, "refuses"},
		"somebody's, made a barrier":           {manager, "UPDATE", "configmaps", "shop", object("web-0-barrier"), object("web-0-barrier", pod), "refuses"},
		"a barrier that is let go":             {manager, "UPDATE", "configmaps", "shop", object("web-0-barrier", pod), object("web-0-barrier"), "refuses"},
		"a copy":                               {manager, "CREATE", "secrets", "shop", nil, object("login", distribution), "passes"},
		"a copy with another owner":            {manager, "UPDATE", "secrets", "shop", object("login", pod, distribution), object("login", pod, distribution), "passes"},
		"a copy that goes":                     {manager, "DELETE", "secrets", "shop", object("login", distribution), nil, "passes"},
		"a copy by an owner that controls not": {manager, "CREATE", "configmaps", "shop", nil, object("login", mere), "refuses"},
		"somebody's Secret, taken over":        {manager, "UPDATE", "secrets", "shop", object("login"), object("login", distribution), "refuses"},
		"somebody's Secret, deleted":           {manager, "DELETE", "secrets", "shop", object("login"), nil, "refuses"},
		"a copy that is let go":                {manager, "UPDATE", "secrets", "shop", object("login", distribution), object("login"), "refuses"},
		"names servers of the cluster":         {manager, "UPDATE", "configmaps", "kube-system", object("coredns"), object("coredns"), "refuses"},
		"a copy in kube-system":                {manager, "CREATE", "configmaps", "kube-system", nil, object("aws-auth", distribution), "refuses"},
		"a barrier in kube-system":             {manager, "CREATE", "configmaps", "kube-system", nil, object("web-0-barrier", pod), "refuses"},
		"its own namespace":                    {manager, "CREATE", "secrets", "kruise-system", nil, object("x"), "is not asked"},
		"copies of pull secrets":               {manager, "DELETE", "secrets", "kruise-daemon-config", object("x"), nil, "is not asked"},
		"somebody else":                        {"alice", "UPDATE", "configmaps", "kube-system", object("coredns"), object("coredns"), "is not asked"},
	} {
		request := map[string]any{"operation": c.operation, "namespace": c.namespace, "userInfo": map[string]any{"username": c.user},
			"resource": map[string]any{"resource": c.resource}}
		if got := judge(t, "copies.yaml", request, c.before, c.after); got != c.want {
			t.Errorf("%s: the policy %s, want that it %s", name, got, c.want)
		}
	}
}

// ND-068 (part): a token of a node daemon that names no node writes nothing, one that does what is of its
// node.
func TestPolicyOfNodeDaemons(t *testing.T) {
	pod := map[string]any{"metadata": map[string]any{"name": "p"}, "spec": map[string]any{"nodeName": "node-a"}, "status": map[string]any{}}
	request := func(labels map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "r", "labels": labels}}
	}
	mine := request(map[string]any{"crr.apps.kruise.io/node-name": "node-a"})
	for name, c := range map[string]struct {
		node, resource, name string
		object               map[string]any
		want                 string
	}{
		"its pod":                       {"node-a", "pods", "p", pod, "passes"},
		"another node's pod":            {"node-b", "pods", "p", pod, "refuses"},
		"a pod, without a node":         {"", "pods", "p", pod, "refuses"},
		"its NodeImage":                 {"node-a", "nodeimages", "node-a", object("node-a"), "passes"},
		"another NodeImage":             {"node-b", "nodeimages", "node-a", object("node-a"), "refuses"},
		"its NodePodProbe":              {"node-a", "nodepodprobes", "node-a", object("node-a"), "passes"}, // PPM-130 (part)
		"another NodePodProbe":          {"node-b", "nodepodprobes", "node-a", object("node-a"), "refuses"},
		"a NodeImage, without a node":   {"", "nodeimages", "node-a", object("node-a"), "refuses"},
		"its request":                   {"node-a", "containerrecreaterequests", "r", mine, "passes"},
		"another node's request":        {"node-b", "containerrecreaterequests", "r", mine, "refuses"},
		"a request, without a node":     {"", "containerrecreaterequests", "r", mine, "refuses"},
		"a request for no node at all":  {"node-a", "containerrecreaterequests", "r", request(map[string]any{}), "refuses"},
		"the same, by a token for none": {"", "containerrecreaterequests", "r", request(map[string]any{"crr.apps.kruise.io/node-name": ""}), "refuses"},
	} {
		user := map[string]any{"username": "system:serviceaccount:kruise-system:kruise-daemon"}
		if c.node != "" {
			user["extra"] = map[string]any{"authentication.kubernetes.io/node-name": []any{c.node}}
		}
		review := map[string]any{"operation": "UPDATE", "subResource": "status", "name": c.name, "userInfo": user,
			"resource": map[string]any{"resource": c.resource}}
		if got := judge(t, "isolation.yaml", review, c.object, c.object); got != c.want {
			t.Errorf("%s: the policy %s, want that it %s", name, got, c.want)
		}
	}
}
