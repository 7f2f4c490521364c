package resourcedistribution_test

import (
	"fmt"
	"strings"
	"testing"

	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	rds "github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
)

// RD-030, RD-031, RD-032, RD-033, RD-035, RD-036, RD-038: what is refused, with the field and the rule, all
// faults at once.
func TestValidate(t *testing.T) {
	named := func(rd *appsv1beta1.ResourceDistribution) { rd.Name = "Not_a_name" }
	for name, c := range map[string]struct {
		options []build.Option
		old     *appsv1beta1.ResourceDistribution
		want    []string
	}{
		"complete":                {[]build.Option{build.To("missing"), build.Labelled("a", "b"), build.Not("c")}, nil, nil},
		"a ConfigMap":             {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c","namespace":"ignored"}}`)}, nil, nil},
		"its name":                {[]build.Option{named}, nil, []string{"metadata.name"}},
		"no resource":             {[]build.Option{build.Resource("")}, nil, []string{"spec.resource: Invalid value: must not be empty"}},
		"an empty resource":       {[]build.Option{build.Resource("{}")}, nil, []string{"spec.resource: Invalid value: must not be empty"}},
		"no object":               {[]build.Option{build.Resource(`[]`)}, nil, []string{"spec.resource: Invalid value: must be an object"}},
		"no apiVersion":           {[]build.Option{build.Resource(`{"kind":"Secret"}`)}, nil, []string{"spec.resource: Invalid value: must have apiVersion and kind"}},
		"no kind":                 {[]build.Option{build.Resource(`{"apiVersion":"v1"}`)}, nil, []string{"spec.resource: Invalid value: must have apiVersion and kind"}},
		"no name":                 {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"Secret","metadata":{"generateName":"x"}}`)}, nil, []string{"must have metadata.name"}},
		"another kind":            {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`)}, nil, []string{"must be a Secret or a ConfigMap"}},
		"another group":           {[]build.Option{build.Resource(`{"apiVersion":"example.com/v1","kind":"Secret","metadata":{"name":"p"}}`)}, nil, []string{"must be a Secret or a ConfigMap"}},
		"data of another type":    {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":1}}`)}, nil, []string{"spec.resource: Invalid value: must be a ConfigMap"}},
		"data that is not base64": {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"},"data":{"k":"hidden!"}}`)}, nil, []string{"must be a Secret"}},
		"a token of an account": {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"type":"kubernetes.io/service-account-token"}`)}, nil,
			[]string{"spec.resource.type: Forbidden: Kubernetes makes tokens"}},
		"a token for nodes": {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"type":"bootstrap.kubernetes.io/token"}`)}, nil,
			[]string{"spec.resource.type: Forbidden"}},
		"the manager's namespaces": {[]build.Option{build.To("x", "kruise-system", "kruise-daemon-config")}, nil,
			[]string{"spec.targets.includedNamespaces.list[1].name: Forbidden: kruise-system is a namespace of the manager", "spec.targets.includedNamespaces.list[2].name"}},
		"without them":                 {[]build.Option{build.All, build.Not("kruise-system")}, nil, nil},
		"names of namespaces":          {[]build.Option{build.To("a.b", ""), build.Not("C")}, nil, []string{"spec.targets.includedNamespaces.list[0].name", "spec.targets.includedNamespaces.list[1].name", "spec.targets.excludedNamespaces.list[0].name"}},
		"a name in both lists":         {[]build.Option{build.To("b", "a", "c"), build.Not("a", "b")}, nil, []string{"spec.targets: Invalid value: namespaces are both in includedNamespaces and in excludedNamespaces: a, b"}},
		"the selector":                 {[]build.Option{build.Labelled("a b", "c")}, nil, []string{"spec.targets.namespaceSelector.matchLabels"}},
		"all at once":                  {[]build.Option{named, build.Resource(""), build.Labelled("a b", "c")}, nil, []string{"metadata.name", "spec.resource", "spec.targets.namespaceSelector"}},
		"other data and targets":       {[]build.Option{build.Resource(strings.ReplaceAll(build.Secret, "YQ==", "Yg==")), build.To("x")}, build.Distribution("a", build.All), nil},
		"another name of the resource": {[]build.Option{build.Resource(strings.ReplaceAll(build.Secret, "login", "other"))}, build.Distribution("a"), []string{"spec.resource: Invalid value: resource apiVersion, kind, and name are immutable"}},
		"another kind of the resource": {[]build.Option{build.Resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"login"}}`)}, build.Distribution("a"), []string{"resource apiVersion, kind, and name are immutable"}},
	} {
		got := rds.Validate(build.Distribution("a", c.options...), c.old, "kruise-system", "kruise-daemon-config")
		if len(got) != len(c.want) {
			t.Errorf("%s: got errors %v, want %q", name, got, c.want)
			continue
		}
		for i, err := range got {
			if !strings.Contains(err.Error(), c.want[i]) {
				t.Errorf("%s: %s, want %s", name, err, c.want[i])
			}
			if strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: data is told: %s", name, err)
			}
		}
	}
	var many []string
	for i := range 5000 {
		many = append(many, fmt.Sprintf("A%d", i))
	}
	got := rds.Validate(build.Distribution("a", build.To(many...), build.Not(many...)), nil)
	if len(got) > 41 {
		t.Errorf("errors: got %d, want 41 at most", len(got))
	}
	if n := len(got.ToAggregate().Error()); n > 16<<10 {
		t.Errorf("bytes of the errors: got %d, want %d at most", n, 16<<10)
	}
}

// RD-037 (part): what is accepted and has no effect is told.
func TestWarnings(t *testing.T) {
	if got := rds.Warnings(build.Distribution("a", build.To("kube-system", "kube-public", "x"))); len(got) != 2 {
		t.Errorf("number of results: got %d, want 2\n%s", len(got), got)
	}
	if got := rds.Validate(build.Distribution("a", build.To("kube-system", "kube-public", "x")), nil); len(got) != 0 {
		t.Errorf("number of results: got %d, want 0\n%v", len(got), got)
	}
	if got := rds.Warnings(build.Distribution("a", build.To("x"))); len(got) != 0 {
		t.Errorf("number of results: got %d, want 0\n%s", len(got), got)
	}
}
