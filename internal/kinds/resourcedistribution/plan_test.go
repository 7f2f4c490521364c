package resourcedistribution_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	rds "github.com/afloat-project/afloat/internal/kinds/resourcedistribution"
	build "github.com/afloat-project/afloat/internal/kinds/resourcedistribution/resourcedistributiontest"
)

func read(t *testing.T, rd *appsv1beta1.ResourceDistribution) *rds.Resource {
	t.Helper()
	resource, err := rds.Read(rd)
	if err != nil {
		t.Fatal(err)
	}
	return resource
}

// copied is the copy in a namespace as the API server stores it.
func copied(t *testing.T, rd *appsv1beta1.ResourceDistribution) client.Object {
	t.Helper()
	resource := read(t, rd)
	object := resource.Object()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured((&unstructured.Unstructured{Object: resource.Document("shop", rds.Owner(rd))}).Object, object); err != nil {
		t.Fatal(err)
	}
	object.SetUID("copy")
	object.SetResourceVersion("7")
	if secret, ok := object.(*corev1.Secret); ok {
		for key, value := range secret.StringData {
			if secret.Data == nil {
				secret.Data = map[string][]byte{}
			}
			secret.Data[key] = []byte(value)
		}
		if secret.StringData = nil; secret.Type == "" {
			secret.Type = corev1.SecretTypeOpaque
		}
	}
	return object
}

// RD-040, RD-041, RD-042, RD-044: which namespaces are targets.
func TestTargets(t *testing.T) {
	selector := build.Labelled("team", "x")
	for name, c := range map[string]struct {
		options []build.Option
		wants   string
	}{
		"nothing":                           {nil, ""},
		"all, the included list is ignored": {[]build.Option{build.All, build.To("missing")}, "x y"},
		"all but":                           {[]build.Option{build.All, build.Not("y")}, "x"},
		"listed, existing or not":           {[]build.Option{build.To("y", "missing")}, "missing y"},
		"selected":                          {[]build.Option{selector}, "x"},
		"the union":                         {[]build.Option{selector, build.To("missing")}, "missing x"},
		"exclusion wins over both":          {[]build.Option{selector, build.To("y"), build.Not("x", "y")}, ""},
		"system namespaces by no rule":      {[]build.Option{build.To("kube-system", "kube-public"), build.All, build.Labelled("team", "z")}, "x y"},
		"system namespaces listed":          {[]build.Option{build.To("kube-system", "kube-public")}, ""},
		"system namespaces selected":        {[]build.Option{build.Labelled("team", "z")}, ""},
		"the manager's namespaces listed":   {[]build.Option{build.To("kruise-system", "x")}, "x"},
	} {
		targets, err := rds.TargetsOf(build.Distribution("a", c.options...), "kruise-system", "kruise-daemon-config")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, ns := range []rds.Namespace{{Name: "missing"}, {Name: "kube-system", Exists: true, Labels: map[string]string{"team": "z"}},
			{Name: "kube-public", Exists: true, Labels: map[string]string{"team": "z"}},
			{Name: "kruise-system", Exists: true, Labels: map[string]string{"team": "z"}}, {Name: "kruise-daemon-config", Exists: true, Labels: map[string]string{"team": "z"}},
			{Name: "x", Exists: true, Labels: map[string]string{"team": "x"}}, {Name: "y", Exists: true, Labels: map[string]string{"team": "y"}}} {
			if targets.Wants(ns.Name, ns.Exists, ns.Labels) {
				got = append(got, ns.Name)
			}
		}
		if strings.Join(got, " ") != c.wants {
			t.Errorf("%s: got %q, want %q", name, strings.Join(got, " "), c.wants)
		}
	}
	if _, err := rds.TargetsOf(build.Distribution("a", build.Labelled("a b", "x"))); err == nil {
		t.Error("a selector with a fault selects")
	}
}

// RD-044 (part): a copy that another release has put into the manager's namespace stays: it may be the Secret
// by which the manager's and the node daemons' images are pulled, and both would not start any more. It goes
// where it would go without that, too.
func TestCopiesInTheManagersNamespaceStay(t *testing.T) {
	for name, c := range map[string]struct {
		options []build.Option
		want    rds.Action
	}{"all": {[]build.Option{build.All}, rds.Keep}, "listed": {[]build.Option{build.To("kruise-system")}, rds.Keep},
		"excluded": {[]build.Option{build.All, build.Not("kruise-system")}, rds.Delete}, "not wanted any more": {[]build.Option{build.To("x")}, rds.Delete}} {
		rd := build.Distribution("a", c.options...)
		targets, err := rds.TargetsOf(rd, "kruise-system")
		if err != nil {
			t.Fatal(err)
		}
		resource, err := rds.Read(rd)
		if err != nil {
			t.Fatal(err)
		}
		verdict := rds.Decide(&rds.Snapshot{Resource: resource, Targets: targets, Owner: rd.UID, Namespace: rds.Namespace{Name: "kruise-system", Exists: true},
			Copy: rds.CopyOf(copied(t, rd))})
		if verdict.Action != c.want {
			t.Errorf("%s: action of the verdict: got %q, want %q\n%+v", name, verdict.Action, c.want, verdict)
		}
		if verdict.Target {
			t.Errorf("%s: target of the verdict: got true, want false\n%+v", name, verdict)
		}
		if verdict.Failure != "" {
			t.Errorf("%s: failure of the verdict: got %q, want %q\n%+v", name, verdict.Failure, "", verdict)
		}
	}
}

// RD-003, RD-045, RD-050, RD-052, RD-070, RD-073, RD-074: what is done in one namespace.
func TestDecide(t *testing.T) {
	rd := build.Distribution("a", build.To("shop"))
	owned := func(change func(*corev1.Secret)) *rds.Copy {
		object, _ := copied(t, rd).(*corev1.Secret)
		if change != nil {
			change(object)
		}
		return rds.CopyOf(object)
	}
	now := metav1.Now()
	none := func(s *corev1.Secret) { s.OwnerReferences = nil }
	other := func(s *corev1.Secret) { s.OwnerReferences[0].UID = "uid-of-rival" }
	data := func(s *corev1.Secret) { s.Data["key"] = []byte("b") }
	for name, c := range map[string]struct {
		copied      *rds.Copy
		gone, going bool
		not         bool
		want        rds.Action
		failure     appsv1beta1.ResourceDistributionConditionType
	}{
		"absent":                          {want: rds.Create, failure: rds.Pending},
		"equal":                           {copied: owned(nil), want: rds.Keep},
		"changed":                         {copied: owned(data), want: rds.Update, failure: rds.Pending},
		"of nobody":                       {copied: owned(none), want: rds.Keep, failure: "ConflictOccurred"},
		"of another one":                  {copied: owned(other), want: rds.Keep, failure: "ConflictOccurred"},
		"of nobody, with our annotation":  {copied: owned(func(s *corev1.Secret) { none(s); data(s) }), want: rds.Keep, failure: "ConflictOccurred"},
		"not controlled, but owned":       {copied: owned(func(s *corev1.Secret) { s.OwnerReferences[0].Controller = nil }), want: rds.Keep, failure: "ConflictOccurred"},
		"ours, with another's annotation": {copied: owned(func(s *corev1.Secret) { s.Annotations[rds.FromAnnotation] = "rival" }), want: rds.Keep},
		"the namespace is missing":        {gone: true, want: rds.Keep, failure: "NamespaceNotExists"},
		"the namespace is going":          {going: true, copied: owned(data), want: rds.Keep, failure: "NamespaceNotExists"},
		"going, and held":                 {copied: owned(func(s *corev1.Secret) { s.DeletionTimestamp, s.Finalizers = &now, []string{"x/y"} }), want: rds.Keep, failure: "CreateResourceFailed"},
		"immutable and changed":           {copied: owned(func(s *corev1.Secret) { data(s); s.Immutable = new(true) }), want: rds.Recreate, failure: rds.Pending},
		"immutable, and labels changed":   {copied: owned(func(s *corev1.Secret) { s.Labels = nil; s.Immutable = new(false) }), want: rds.Update, failure: rds.Pending},
		"of another type":                 {copied: owned(func(s *corev1.Secret) { s.Type = "x/y" }), want: rds.Recreate, failure: rds.Pending},
		"no target, ours":                 {not: true, copied: owned(data), want: rds.Delete},
		"no target, another's":            {not: true, copied: owned(other), want: rds.Keep},
		"no target, nobody's":             {not: true, copied: owned(none), want: rds.Keep},
		"no target, absent":               {not: true, want: rds.Keep},
		"no target, going already":        {not: true, copied: owned(func(s *corev1.Secret) { s.DeletionTimestamp = &now }), want: rds.Keep},
		"no target, going, and held": {not: true, copied: owned(func(s *corev1.Secret) { s.DeletionTimestamp, s.Finalizers = &now, []string{"x/y"} }),
			want: rds.Keep, failure: "DeleteResourceFailed"},
		"no target, another's, and held": {not: true, copied: owned(func(s *corev1.Secret) { other(s); s.DeletionTimestamp, s.Finalizers = &now, []string{"x/y"} }),
			want: rds.Keep},
		"no target, in a namespace that is going": {not: true, going: true, copied: owned(nil), want: rds.Keep},
	} {
		targets, err := rds.TargetsOf(rd)
		if c.not {
			targets, err = rds.TargetsOf(build.Distribution("a", build.Not("shop"), build.All))
		}
		if err != nil {
			t.Fatal(err)
		}
		got := rds.Decide(&rds.Snapshot{Resource: read(t, rd), Targets: targets, Owner: rd.UID, Copy: c.copied,
			Namespace: rds.Namespace{Name: "shop", Exists: !c.gone, Terminating: c.going}})
		if got.Action != c.want {
			t.Errorf("%s: action: got %q, want %q\n%+v", name, got.Action, c.want, got)
		}
		if got.Failure != c.failure {
			t.Errorf("%s: failure: got %q, want %q\n%+v", name, got.Failure, c.failure, got)
		}
		if got.Target == c.not {
			t.Errorf("%s: target: got %t, want another value\n%+v", name, got.Target, got)
		}
		if got.Failure != "" && got.Failure != rds.Pending && got.Reason == "" {
			t.Errorf("%s: no reason", name)
		}
	}
}

// RD-050 (part), RD-090 (part): a namespace that ends, and is not listed by name, is no target any more, and
// nothing of it is a failure.
func TestANamespaceThatEndsIsNoFailure(t *testing.T) {
	for name, c := range map[string]struct {
		option  build.Option
		failure appsv1beta1.ResourceDistributionConditionType
	}{"all": {build.All, ""}, "selected": {build.Labelled("team", "x"), ""}, "listed": {build.To("shop"), "NamespaceNotExists"}} {
		rd := build.Distribution("a", c.option)
		targets, err := rds.TargetsOf(rd)
		if err != nil {
			t.Fatal(err)
		}
		for _, copied := range []*rds.Copy{nil, rds.CopyOf(copied(t, rd).(*corev1.Secret))} {
			got := rds.Decide(&rds.Snapshot{Resource: read(t, rd), Targets: targets, Owner: rd.UID, Copy: copied,
				Namespace: rds.Namespace{Name: "shop", Exists: true, Terminating: true, Labels: map[string]string{"team": "x"}}})
			if got.Action != rds.Keep {
				t.Errorf("%s: action: got %q, want %q\n%+v", name, got.Action, rds.Keep, got)
			}
			if got.Failure != c.failure {
				t.Errorf("%s: failure: got %q, want %q\n%+v", name, got.Failure, c.failure, got)
			}
			if got.Target != (c.failure != "") {
				t.Errorf("%s: target: got %t, want %t\n%+v", name, got.Target, c.failure != "", got)
			}
		}
	}
}

// RD-011 (part): a stored ResourceDistribution of tokens, which is refused today, does not fight the
// controller that fills and deletes them.
func TestTokensOfServiceAccountsAreNotDistributed(t *testing.T) {
	rd := build.Distribution("a", build.To("shop"), build.Resource(`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token",
		"metadata":{"name":"t","annotations":{"kubernetes.io/service-account.name":"default"}}}`))
	filled, _ := copied(t, rd).(*corev1.Secret)
	filled.Data = map[string][]byte{"token": []byte("x")}
	targets, err := rds.TargetsOf(rd)
	if err != nil {
		t.Fatal(err)
	}
	for name, copied := range map[string]*rds.Copy{"deleted": nil, "filled": rds.CopyOf(filled)} {
		got := rds.Decide(&rds.Snapshot{Resource: read(t, rd), Targets: targets, Owner: rd.UID, Copy: copied, Namespace: rds.Namespace{Name: "shop", Exists: true}})
		if got.Action != rds.Keep {
			t.Errorf("%s: action: got %q, want %q\n%+v", name, got.Action, rds.Keep, got)
		}
		if got.Failure != "CreateResourceFailed" {
			t.Errorf("%s: failure: got %q, want %q\n%+v", name, got.Failure, "CreateResourceFailed", got)
		}
		if !strings.Contains(got.Reason, "token") {
			t.Errorf("%s: reason: got %q, want it to contain %q\n%+v", name, got.Reason, "token", got)
		}
	}
}

// RD-011, RD-053: what a copy consists of; what a resource must have, and that its namespace is ignored.
func TestACopyConsistsOfItsResource(t *testing.T) {
	const text = `{"apiVersion":"v1","kind":"ConfigMap","immutable":true,"unknown":{"kept":1},"metadata":{"name":"c","namespace":"elsewhere","uid":"u","resourceVersion":"3",
"labels":{"l":"v"},"annotations":{"a":"v"},"finalizers":["x/y"],"ownerReferences":[{"uid":"z"}]},"data":{"k":"v"},"binaryData":{"b":"AA=="}}`
	rd := build.Distribution("rd", build.Resource(text))
	got, err := json.MarshalIndent(read(t, rd).Document("shop", rds.Owner(rd)), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	for _, needed := range []string{`"apiVersion":"v1",`, `"kind":"ConfigMap",`, `"name":"c",`} {
		if _, err := rds.Read(build.Distribution("rd", build.Resource(strings.Replace(text, needed, "", 1)))); err == nil {
			t.Errorf("%s is not needed", needed)
		}
	}
	var document, want map[string]any
	if err := json.Unmarshal(got, &document); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(`{"apiVersion":"v1","kind":"ConfigMap","immutable":true,"unknown":{"kept":1},"data":{"k":"v"},"binaryData":{"b":"AA=="},
"metadata":{"name":"c","namespace":"shop","labels":{"l":"v"},"finalizers":["x/y"],"annotations":{"a":"v","kruise.io/resourcedistribution.resource.from":"rd",
"kruise.io/resourcedistribution.resource.hashcode":"HASH"},"ownerReferences":[{"apiVersion":"apps.kruise.io/v1beta1","kind":"ResourceDistribution","name":"rd",
"uid":"uid-of-rd","controller":true,"blockOwnerDeletion":true}]}}`), &want); err != nil {
		t.Fatal(err)
	}
	annotations := document["metadata"].(map[string]any)["annotations"].(map[string]any)
	sum, _ := annotations[rds.HashAnnotation].(string)
	if len(sum) != 64 {
		t.Errorf("length of the sum: got %d, want 64", len(sum))
	}
	if want := read(t, rd).Hash; sum != want {
		t.Errorf("annotation with the hash: got %q, want %q", sum, want)
	}
	if other := read(t, build.Distribution("rd", build.Resource(text+" "))).Hash; other == read(t, rd).Hash {
		t.Error("the hash is not of the raw bytes")
	}
	annotations[rds.HashAnnotation] = "HASH"
	if diff := cmp.Diff(want, document); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

// RD-055: what is a difference, and what is none.
func TestACopyDiffersOnlyByWhatIsDistributed(t *testing.T) {
	secret := func(rest string) build.Option {
		return build.Resource(`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"l":"v"},"annotations":{"a":"v"}},` + rest + `}`)
	}
	configMap := build.Resource(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"k":"v"},"binaryData":{"b":"AA=="}}`)
	for name, c := range map[string]struct {
		option build.Option
		change func(client.Object)
		same   bool
	}{
		"a Secret as it is":                           {secret(`"data":{"k":"dg=="}`), nil, true},
		"stringData, which wins, and no type (RD-D2)": {secret(`"data":{"k":"b2xk","n":null},"stringData":{"k":"new"}`), nil, true},
		"an empty one":                                {secret(`"data":{}`), func(o client.Object) { o.(*corev1.Secret).Data = nil }, true},
		"a key changed":                               {secret(`"data":{"k":"dg=="}`), func(o client.Object) { o.(*corev1.Secret).Data["k"] = nil }, false},
		"a key more":                                  {secret(`"data":{"k":"dg=="}`), func(o client.Object) { o.(*corev1.Secret).Data["m"] = nil }, false},
		"immutable":                                   {secret(`"data":{"k":"dg=="}`), func(o client.Object) { o.(*corev1.Secret).Immutable = new(true) }, false},
		"immutable false, which is none":              {secret(`"data":{"k":"dg=="}`), func(o client.Object) { o.(*corev1.Secret).Immutable = new(false) }, true},
		"the type":                                    {secret(`"type":"a/b"`), func(o client.Object) { o.(*corev1.Secret).Type = "a/c" }, false},
		"a label of the resource":                     {secret(`"type":"a/b"`), func(o client.Object) { o.GetLabels()["l"] = "w" }, false},
		"an annotation of the resource":               {secret(`"type":"a/b"`), func(o client.Object) { delete(o.GetAnnotations(), "a") }, false},
		"the hash":                                    {secret(`"type":"a/b"`), func(o client.Object) { o.GetAnnotations()[rds.HashAnnotation] = "x" }, false},
		"a label of others":                           {secret(`"type":"a/b"`), func(o client.Object) { o.GetLabels()["m"] = "w" }, true},
		"the name of the distribution":                {secret(`"type":"a/b"`), func(o client.Object) { o.GetAnnotations()[rds.FromAnnotation] = "x" }, true},
		"a ConfigMap as it is":                        {configMap, nil, true},
		"data of a ConfigMap":                         {configMap, func(o client.Object) { o.(*corev1.ConfigMap).Data["k"] = "w" }, false},
		"binary data":                                 {configMap, func(o client.Object) { o.(*corev1.ConfigMap).BinaryData["b"] = nil }, false},
		"binary data as data":                         {configMap, func(o client.Object) { o.(*corev1.ConfigMap).BinaryData, o.(*corev1.ConfigMap).Data["b"] = nil, "\x00" }, false},
		"an immutable ConfigMap":                      {configMap, func(o client.Object) { o.(*corev1.ConfigMap).Immutable = new(true) }, false},
	} {
		rd := build.Distribution("a", c.option)
		object := copied(t, rd)
		if c.change != nil {
			c.change(object)
		}
		if got := read(t, rd).Same(rds.CopyOf(object)); got != c.same {
			t.Errorf("%s: the copy is the same: got %t, want %t", name, got, c.same)
		}
	}
}

// RD-054: an update keeps what others have added to the metadata, and replaces the content as a whole; it is
// of exactly one version.
func TestPatchesKeepWhatOthersAddedToMetadata(t *testing.T) {
	rd := build.Distribution("a", build.Resource(
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","labels":{"l/x":"v"},"finalizers":["x/y"]},"stringData":{"k":"new"}}`))
	for name, change := range map[string]func(*corev1.Secret){
		"with metadata of others": func(s *corev1.Secret) {
			s.Labels, s.Finalizers = map[string]string{"l/x": "old", "theirs": "t"}, []string{"their/s"}
			s.Annotations["theirs"] = "t"
			s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{UID: "theirs"})
		},
		"without metadata": func(s *corev1.Secret) { s.Labels, s.Annotations, s.Finalizers = nil, nil, nil },
	} {
		live, _ := copied(t, rd).(*corev1.Secret)
		change(live)
		live.Data = map[string][]byte{"k": []byte("old"), "theirs": nil}
		before, err := json.Marshal(live)
		if err != nil {
			t.Fatal(err)
		}
		of := rds.CopyOf(live)
		body, err := read(t, rd).Patch(of)
		if err != nil {
			t.Fatal(err)
		}
		for _, guard := range []string{`"/metadata/uid","value":"copy"`, `"/metadata/resourceVersion","value":"7"`} {
			if !strings.Contains(string(body), guard) {
				t.Errorf("no %s in %s", guard, body)
			}
		}
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			t.Fatal(err)
		}
		after, err := patch.Apply(before)
		if err != nil {
			t.Fatalf("%s: applying the patch: %v", name, err)
		}
		var got corev1.Secret
		if err := json.Unmarshal(after, &got); err != nil {
			t.Fatal(err)
		}
		if !read(t, rd).Same(rds.CopyOf(&got)) {
			t.Errorf("%s: the copy is the same: got false, want true\n%s", name, after)
		}
		if len(got.Data) != 1 {
			t.Errorf("%s: number of keys: got %d, want 1\n%s", name, len(got.Data), after)
		}
		if got.Labels["l/x"] != "v" {
			t.Errorf("%s: label l/x: got %q, want %q\n%s", name, got.Labels["l/x"], "v", after)
		}
		if !slices.Contains(got.Finalizers, "x/y") {
			t.Errorf("%s: finalizers: got %q, want it to contain %q\n%s", name, got.Finalizers, "x/y", after)
		}
		if live.Labels != nil && (got.Labels["theirs"] != "t" || got.Annotations["theirs"] != "t" || len(got.OwnerReferences) != 2 || len(got.Finalizers) != 2) {
			t.Errorf("%s: what others wrote has gone: %s", name, after)
		}
	}
}

// RD-090, RD-091, RD-092, RD-093, RD-094, RD-096, RD-043: what a status says.
func TestStatus(t *testing.T) {
	at := func(n int) time.Time { return time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC) }
	var tally rds.Tally
	empty := tally.Status(&appsv1beta1.ResourceDistributionStatus{}, 3, at(0))
	if empty.Desired != 0 {
		t.Errorf("desired: got %d, want 0\n%+v", empty.Desired, empty)
	}
	if empty.ObservedGeneration != 3 {
		t.Errorf("observed generation: got %d, want 3\n%+v", empty.ObservedGeneration, empty)
	}
	if len(empty.Conditions) != 6 {
		t.Errorf("number of conditions: got %d, want 6\n%+v", len(empty.Conditions), empty)
	}
	var order []string
	for _, c := range empty.Conditions {
		order = append(order, string(c.Type))
		if c.Status != corev1.ConditionFalse {
			t.Errorf("status: got %q, want %q\n%+v", c.Status, corev1.ConditionFalse, c)
		}
		if c.Reason != "Succeeded" {
			t.Errorf("reason: got %q, want %q\n%+v", c.Reason, "Succeeded", c)
		}
		if c.FailedNamespaces != nil {
			t.Errorf("failed namespaces: got %q, want nil\n%+v", c.FailedNamespaces, c)
		}
	}
	if got := strings.Join(order, " "); got != "GetResourceFailed CreateResourceFailed UpdateResourceFailed DeleteResourceFailed ConflictOccurred NamespaceNotExists" {
		t.Errorf("order: got %q, want %q", got, "GetResourceFailed CreateResourceFailed UpdateResourceFailed DeleteResourceFailed ConflictOccurred NamespaceNotExists")
	}
	conflict := rds.Outcome{Target: true, Failure: "ConflictOccurred", Reason: "same"}
	for _, name := range []string{"z", "m", "b"} {
		tally.Set(name, conflict)
	}
	tally.Set("ok", rds.Outcome{Target: true})
	tally.Set("pending", rds.Outcome{Target: true, Failure: rds.Pending})
	tally.Set("c", rds.Outcome{Target: true, Failure: "CreateResourceFailed", Reason: "quota"})
	tally.Set("d", rds.Outcome{Target: true, Failure: "CreateResourceFailed", Reason: "webhook"})
	tally.Set("left", rds.Outcome{Failure: "DeleteResourceFailed", Reason: "no"})
	tally.Set("missing", rds.Ended())
	old := empty
	old.Conditions = old.Conditions[4:5] // one of another order, and fewer (RD-096)
	old.Conditions = append(old.Conditions, appsv1beta1.ResourceDistributionCondition{ResourceDistributionConditionState: appsv1beta1.ResourceDistributionConditionState{Type: "Strange"}})
	got := tally.Status(&old, 4, at(1))
	if got.Desired != 8 {
		t.Errorf("desired: got %d, want 8\n%+v", got.Desired, got)
	}
	if got.Succeeded != 1 {
		t.Errorf("succeeded: got %d, want 1\n%+v", got.Succeeded, got)
	}
	if got.Failed != 7 {
		t.Errorf("failed: got %d, want 7\n%+v", got.Failed, got)
	}
	if len(got.Conditions) != 6 {
		t.Errorf("number of conditions: got %d, want 6\n%+v", len(got.Conditions), got)
	}
	for i, want := range []string{"False Succeeded []", "True c: quota; and 1 other [c d]", "False Succeeded []", "True no [left]", "True same [b m z]",
		"True namespace was not found, or is terminating [missing]"} {
		c := got.Conditions[i]
		if text := fmt.Sprintf("%s %s %v", c.Status, c.Reason, c.FailedNamespaces); text != want {
			t.Errorf("%s: %s, want %s", c.Type, text, want)
		}
		if c.LastTransitionTime.Minute() != 1 {
			t.Errorf("%s has changed at %s", c.Type, c.LastTransitionTime)
		}
	}
	// Times stay while the status of a condition does, whatever its namespaces.
	tally.Set("b", rds.Outcome{Target: true})
	tally.Set("c", rds.Outcome{})
	tally.Set("d", rds.Outcome{Target: true})
	next := tally.Status(&got, 4, at(2))
	if next.Desired != 7 {
		t.Errorf("desired: got %d, want 7\n%+v", next.Desired, next)
	} else if next.Succeeded != 3 {
		t.Errorf("succeeded: got %d, want 3\n%+v", next.Succeeded, next)
	} else if got := next.Conditions[4].LastTransitionTime.Minute(); got != 1 {
		t.Errorf("minute of the time of the last change of the fifth condition: got %d, want 1\n%+v", got, next)
	} else if got := next.Conditions[1].LastTransitionTime.Minute(); got != 2 {
		t.Errorf("minute of the time of the last change of the second condition: got %d, want 2\n%+v", got, next)
	} else if !slices.Equal(next.Conditions[4].FailedNamespaces, []string{"m", "z"}) {
		t.Errorf("failed namespaces of the fifth condition: got %q, want %q\n%+v", next.Conditions[4].FailedNamespaces, []string{"m", "z"}, next)
	} else if next.Conditions[1].Status != corev1.ConditionFalse {
		t.Errorf("status of the second condition: got %q, want %q\n%+v", next.Conditions[1].Status, corev1.ConditionFalse, next)
	}
	if again := tally.Status(&next, 4, at(3)); cmp.Diff(next, again) != "" {
		t.Errorf("status after another pass (-first +second):\n%s", cmp.Diff(next, again))
	}
}

// A status of ten thousand failures is no larger than an object may be, and tells how many there are.
func TestAStatusOfManyFailuresFits(t *testing.T) {
	var tally rds.Tally
	for i := range 10_000 {
		tally.Set(fmt.Sprintf("%s-%05d", strings.Repeat("n", 57), i), rds.Outcome{Target: true, Failure: "CreateResourceFailed", Reason: strings.Repeat("x", 2000) + fmt.Sprint(i)})
	}
	status := tally.Status(&appsv1beta1.ResourceDistributionStatus{}, 1, time.Now())
	text, err := json.Marshal(status)
	if err != nil {
		t.Errorf("unexpected error: %v; %d bytes, %s", err, len(text), status.Conditions[1].Reason)
	} else if len(text) > 32<<10 {
		t.Errorf("%v: length of the text: got %d, want at most %d; %d bytes, %s", err, len(text), 32<<10, len(text), status.Conditions[1].Reason)
	} else if status.Failed != 10_000 {
		t.Errorf("%v: failed: got %d, want 10_000; %d bytes, %s", err, status.Failed, len(text), status.Conditions[1].Reason)
	} else if !strings.Contains(status.Conditions[1].Reason, "the first 250 of 10000 namespaces are named") {
		t.Errorf("%v: reason of the second condition: got %q, want it to contain %q; %d bytes, %s", err, status.Conditions[1].Reason,
			"the first 250 of 10000 namespaces are named", len(text), status.Conditions[1].Reason)
	}
}

// RD-012, RD-013: what an object looks like in both versions, and to kubectl.
func TestFieldsLookTheSameInBothVersions(t *testing.T) {
	var status appsv1beta1.ResourceDistributionStatus
	text, err := json.Marshal(status)
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, text)
	} else if string(text) != "{}" {
		t.Errorf("%v: text: got %q, want %q", err, string(text), "{}")
	}
	beta, err := json.Marshal(build.Distribution("a", build.Labelled("a", "b"), func(rd *appsv1beta1.ResourceDistribution) {
		rd.Status.Conditions = []appsv1beta1.ResourceDistributionCondition{{FailedNamespaces: []string{"x"}}}
	}))
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, beta)
	} else if !strings.Contains(string(beta), `"targets":{"namespaceSelector":{`) {
		t.Errorf("%v: beta: got %q, want it to contain %q", err, string(beta), `"targets":{"namespaceSelector":{`)
	} else if !strings.Contains(string(beta), `"failedNamespaces":["x"]`) {
		t.Errorf("%v: beta: got %q, want it to contain %q", err, string(beta), `"failedNamespaces":["x"]`)
	}
	alpha, err := json.Marshal(appsv1alpha1.ResourceDistributionFromV1beta1(build.Distribution("a", build.Labelled("a", "b"), func(rd *appsv1beta1.ResourceDistribution) {
		rd.Status.Conditions = []appsv1beta1.ResourceDistributionCondition{{FailedNamespaces: []string{"x"}}}
	})))
	if err != nil {
		t.Errorf("unexpected error: %v\n%s", err, alpha)
	} else if !strings.Contains(string(alpha), `"targets":{"namespaceLabelSelector":{`) {
		t.Errorf("%v: alpha: got %q, want it to contain %q", err, string(alpha), `"targets":{"namespaceLabelSelector":{`)
	} else if !strings.Contains(string(alpha), `"failedNamespace":["x"]`) {
		t.Errorf("%v: alpha: got %q, want it to contain %q", err, string(alpha), `"failedNamespace":["x"]`)
	}
	definition, err := os.ReadFile("../../../config/crd/bases/apps.kruise.io_resourcedistributions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if got := regexp.MustCompile(`name: ([A-Z]+)\n`).FindAllString(string(definition), -1); strings.Join(got, "") != strings.Repeat("name: TOTAL\nname: SUCCEED\nname: FAILED\n", 2) {
		t.Errorf("got %q, want %q", strings.Join(got, ""), strings.Repeat("name: TOTAL\nname: SUCCEED\nname: FAILED\n", 2))
	}
}

// RD-072: the kind and the name of what is distributed stay, so that no copy of another name is left behind;
// even if an object was stored otherwise, the old one is none of its copies.
func TestNamesStay(t *testing.T) {
	old := build.Distribution("a")
	for from, to := range map[string]string{`"name":"login"`: `"name":"other"`, `"kind":"Secret"`: `"kind":"ConfigMap"`} {
		if errs := rds.Validate(build.Distribution("a", build.Resource(strings.Replace(build.Secret, from, to, 1))), old); !strings.Contains(fmt.Sprint(errs), "are immutable") {
			t.Errorf("%s: errs: got %q, want it to contain %q", to, fmt.Sprint(errs), "are immutable")
		}
	}
}
