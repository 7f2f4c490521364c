package ephemeraljob_test

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	"github.com/afloat-project/afloat/internal/kinds/ephemeraljob"
	. "github.com/afloat-project/afloat/internal/kinds/ephemeraljob/ephemeraljobtest"
)

// read decodes a job with that spec both ways.
func read(t *testing.T, spec string) (ephemeraljob.Document, *appsv1alpha1.EphemeralJob) {
	t.Helper()
	text := []byte(`{"spec":` + spec + `}`)
	document, job := ephemeraljob.Document{}, &appsv1alpha1.EphemeralJob{}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, job); err != nil {
		t.Fatal(err)
	}
	return document, job
}

const valid = `"selector":{"matchLabels":{"app":"web"}}`

// EJ-012 (part), EJ-015 (part), EJ-026 (part): defaults, which change nothing that is given, and nothing that
// is stored.
func TestDefaults(t *testing.T) {
	for given, want := range map[string]string{
		`{"template":{"ephemeralContainers":[{"image":"a"},{"image":"a:latest"},{"image":"a:1"},{"image":"a@sha256:0123456789012345678901234567890123456789012345678901234567890123"}]}}`: `{"parallelism":1,"ttlSecondsAfterFinished":1800,` +
			`"template":{"ephemeralContainers":[{"image":"a","imagePullPolicy":"Always","terminationMessagePolicy":"File"},` +
			`{"image":"a:latest","imagePullPolicy":"Always","terminationMessagePolicy":"File"},{"image":"a:1","imagePullPolicy":"IfNotPresent","terminationMessagePolicy":"File"},` +
			`{"image":"a@sha256:0123456789012345678901234567890123456789012345678901234567890123","imagePullPolicy":"IfNotPresent","terminationMessagePolicy":"File"}]}}`,
		`{"parallelism":0,"ttlSecondsAfterFinished":0,"template":{"ephemeralContainers":[{"image":"a","imagePullPolicy":"Never","terminationMessagePolicy":"FallbackToLogsOnError"}]}}`: `{"parallelism":0,"ttlSecondsAfterFinished":0,` +
			`"template":{"ephemeralContainers":[{"image":"a","imagePullPolicy":"Never","terminationMessagePolicy":"FallbackToLogsOnError"}]}}`,
		`{"template":{"ephemeralContainers":"odd"}}`: `{"parallelism":1,"ttlSecondsAfterFinished":1800,"template":{"ephemeralContainers":"odd"}}`,
	} {
		document, _ := read(t, given)
		operations := ephemeraljob.Default(document, nil)
		body, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(body)
		if err != nil {
			t.Fatal(err)
		}
		got := []byte(`{"spec":` + given + `}`)
		if len(operations) > 0 {
			if got, err = patch.Apply(got); err != nil {
				t.Fatal(err)
			}
		}
		if !jsonpatch.Equal(got, []byte(`{"spec":`+want+`}`)) {
			t.Errorf("%s\n got %s\nwant %s", given, got, want)
		}
		defaulted, _ := read(t, want)
		if again := ephemeraljob.Default(defaulted, nil); len(again) > 0 {
			t.Errorf("%s: defaults the second time: got %v, want none", want, again)
		}
	}
	stored, _ := read(t, `{"parallelism":1,"ttlSecondsAfterFinished":1,"template":{"ephemeralContainers":[{"image":"a"}]}}`)
	if patch := ephemeraljob.Default(stored, stored); len(patch) > 0 {
		t.Errorf("defaults of what is stored: got %v, want none", patch)
	}
	if patch := ephemeraljob.Default(ephemeraljob.Document{"spec": 5}, nil); patch != nil {
		t.Errorf(`defaults of a bad spec: got %v, want nil`, patch)
	}
}

// EJ-025 (part), EJ-026, EJ-027, EJ-028, EJ-029: what is refused, all faults at once, and what is not.
func TestAllFaultsAreRefusedAtOnce(t *testing.T) {
	container := func(fields string) string {
		return `{` + valid + `,"template":{"ephemeralContainers":[{"name":"a","image":"a"` + fields + `}]}}`
	}
	all := `,"command":["a"],"args":["a"],"workingDir":"/","envFrom":[],"env":[],"volumeMounts":[{"name":"a","mountPath":"/a"}],"volumeDevices":[],` +
		`"terminationMessagePath":"/a","terminationMessagePolicy":"File","imagePullPolicy":"Never","securityContext":{},"stdin":true,"stdinOnce":true,"tty":true,"targetContainerName":"x"`
	const list = "spec.template.ephemeralContainers"
	forbidden := func(fields ...string) string {
		var lines []string
		for _, name := range fields {
			lines = append(lines, list+"[0]."+name+": Forbidden: cannot be set for an Ephemeral Container")
		}
		return strings.Join(lines, "\n")
	}
	for spec, want := range map[string]string{
		container(``):  "",
		container(all): "",
		container(`,"ports":[],"resources":{"limits":{},"claims":null},"livenessProbe":{},"resizePolicy":[],"lifecycle":{"preStop":{}}`): "",
		container(`,"ports":[{}],"resources":{"limits":{"cpu":1}},"livenessProbe":{"tcpSocket":{"port":1}},"readinessProbe":{"periodSeconds":1},"startupProbe":{"periodSeconds":1},"lifecycle":{"stopSignal":"SIGTERM"},"resizePolicy":[{}],"restartPolicy":"Always"`): forbidden("lifecycle", "livenessProbe", "ports", "readinessProbe",
			"resizePolicy", "resources", "restartPolicy", "startupProbe"),
		container(`,"restartPolicyRules":[{}],"ofTheFuture":1,"ports":null`): forbidden("ofTheFuture") + ": it is not a known field\n" + forbidden("restartPolicyRules"),
		container(`,"volumeMounts":[{"name":"a","mountPath":"/a","subPath":"b"},{"name":"a","mountPath":"/b","subPathExpr":"c"}]`): forbidden("volumeMounts[0].subPath",
			"volumeMounts[1].subPathExpr"),
		container(`,"env":[{"name":"A"},{"name":"KRUISE_EJOB_ID","value":"x"}]`): list + "[0].env[1]: Forbidden: KRUISE_EJOB_ID cannot be set: the manager marks containers with it",
		container(`,"imagePullPolicy":"Often","terminationMessagePolicy":"Loud"`): list + `[0].imagePullPolicy: Unsupported value: "Often": supported values: "Always", "IfNotPresent", "Never"` + "\n" +
			list + `[0].terminationMessagePolicy: Unsupported value: "Loud": supported values: "File", "FallbackToLogsOnError"`,
		`{` + valid + `,"template":{"ephemeralContainers":[{"name":"A_","image":" a"},{"image":" "},{"name":"b","image":"a"},{"name":"b","image":"a "}]}}`: list + `[0].name: Invalid value: "A_": a lowercase RFC 1123 label` + "\n" +
			list + `[0].image: Invalid value: " a": must not have` + "\n" + list + "[1].name: Required\n" + list + "[1].image: Required\n" +
			list + `[3].image: Invalid value: "a ": must not have` + "\n" + list + `[3].name: Duplicate value: "b"`,
		`{"selector":{},"replicas":-1,"parallelism":-2,"activeDeadlineSeconds":-3,"ttlSecondsAfterFinished":-4,"template":{"ephemeralContainers":[]}}`: "spec.replicas: Invalid value: -1\n" +
			"spec.parallelism: Invalid value: -2\nspec.activeDeadlineSeconds: Invalid value: -3\nspec.ttlSecondsAfterFinished: Invalid value: -4\nspec.selector: Required\n" + list + ": Required",
		`{"template":{"ephemeralContainers":null}}`:                                                                                                                                       "spec.selector: Required\n" + list + ": Required",
		`{` + valid + `,"template":{"ephemeralContainers":{"name":"a"}}}`:                                                                                                                 list + ": Invalid",
		`{"selector":{"matchExpressions":[{"key":"a","operator":"Or"}]},"template":{"ephemeralContainers":[]}}`:                                                                           "spec.selector.matchExpressions[0].operator: Invalid\n" + list + ": Required",
		`{` + valid + `,"template":{"ephemeralContainers":[` + strings.Repeat(`{"name":"a","image":"a"},`, 100) + `{"name":"a","image":"a"}]}}`:                                           list + ": Too many: 101",
		`{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"` + strings.Repeat(`,"b"`, 200) + `]}]},"template":{"ephemeralContainers":[{"name":"a","image":"a"}]}}`: "spec.selector: Too many: 202",
	} {
		document, job := read(t, spec)
		errs := ephemeraljob.Validate(document, job, nil)
		var lines []string
		if want != "" {
			lines = strings.Split(want, "\n")
		}
		if len(errs) != len(lines) {
			t.Errorf("%s:\n got %v\nwant %s", spec, errs, want)
			continue
		}
		for i := range errs {
			if !strings.HasPrefix(errs[i].Error(), lines[i]) {
				t.Errorf("%.200s:\n got %v\nwant %s", spec, errs[i], lines[i])
			}
		}
	}
}

// EJ-030: what may change and what may not. What is stored and was not refused then is not refused now.
func TestSelectorAndTemplateOfAJobCannotBeChanged(t *testing.T) {
	const template = `"template":{"ephemeralContainers":[{"name":"a","image":"a"}]}`
	for before, cases := range map[string]map[string]string{
		`{` + valid + `,` + template + `}`: {
			`{` + valid + `,` + template + `,"parallelism":2,"replicas":3,"paused":true,"activeDeadlineSeconds":4,"ttlSecondsAfterFinished":5}`: "",
			`{` + valid + `,` + template + `,"parallelism":-2}`:                                         "spec.parallelism: Invalid value: -2: must be greater than or equal to 0",
			`{"selector":{"matchLabels":{"app":"db"}},` + template + `}`:                                "spec.selector: Forbidden: cannot be changed: create another job",
			`{` + valid + `,"template":{"ephemeralContainers":[{"name":"a","image":"b"}]}}`:             "spec.template: Forbidden: cannot be changed: create another job",
			`{` + valid + `,"template":{"ephemeralContainers":[{"name":"a","image":"a","unknown":1}]}}`: "spec.template: Forbidden: cannot be changed: create another job",
		},
		`{"selector":{},"replicas":-1,"template":{"ephemeralContainers":[]}}`: {
			`{"selector":{},"replicas":-1,"paused":true,"template":{"ephemeralContainers":[]}}`: "",
		},
	} {
		_, old := read(t, before)
		for after, want := range cases {
			document, job := read(t, after)
			got := ""
			if errs := ephemeraljob.Validate(document, job, old); len(errs) > 0 {
				got = errs.ToAggregate().Error()
			}
			if got != want {
				t.Errorf("%s to %s: %s", before, after, got)
			}
		}
	}
}

// EJ-018: the mark is behind the variables of the user; one of that name from somebody else does not get
// through. EJ-045 (part): all containers in one patch, behind those that the pod has, fields that our types
// do not know included.
func TestInjection(t *testing.T) {
	job := Job(With(`[{"name":"a","env":[{"name":"X","value":"1"},{"name":"KRUISE_EJOB_ID","value":"forged"}],"future":{"$patch":"replace"}},{"name":"b"}]`))
	containers, err := ephemeraljob.Containers(job)
	if err != nil {
		t.Fatal(err)
	}
	const a = `{"env":[{"name":"X","value":"1"},{"name":"KRUISE_EJOB_ID","value":"job"}],"future":{"$patch":"replace"},"name":"a"}`
	const b = `{"env":[{"name":"KRUISE_EJOB_ID","value":"job"}],"name":"b"}`
	for pod, want := range map[*corev1.Pod]string{
		Pod("p"): `{"op":"add","path":"/spec/ephemeralContainers","value":[` + a + `,` + b + `]}`,
		Pod("p", Container("x", "", nil)): `{"op":"add","path":"/spec/ephemeralContainers/-","value":` + a + `},{"op":"add","path":"/spec/ephemeralContainers/-","value":` + b +
			`}`,
	} {
		body, err := ephemeraljob.Injection(pod, containers)
		var got, wanted any
		guards := `[{"op":"replace","path":"/metadata/uid","value":"uid-p"},{"op":"replace","path":"/metadata/resourceVersion","value":"1"},`
		if err == nil {
			err = json.Unmarshal(body, &got)
		}
		if e := json.Unmarshal([]byte(guards+want+`]`), &wanted); err != nil {
			t.Fatalf("unexpected error: %v\n%v", err, e)
		} else if e != nil {
			t.Fatalf("json.Unmarshal([]byte(guards+want+`]`), &wanted): unexpected error: %v\n%v", e, err)
		}
		if diff := cmp.Diff(wanted, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	for _, odd := range []string{`"x"`, `[{"name":"a","env":5}]`, `[5]`} {
		if _, err := ephemeraljob.Containers(Job(With(odd))); err == nil {
			t.Errorf("%s has containers", odd)
		}
	}
}

// What the API server judges is a pod template that has all that the containers name, and its answers lead
// back to them.
func TestTemplateForTheServer(t *testing.T) {
	document, _ := read(t, `{"template":{"ephemeralContainers":[{"name":"a","image":"a","targetContainerName":"x","ports":[],"volumeMounts":[{"name":"v"},{"name":"v"}],"volumeDevices":[{"name":"d"}]}]}}`)
	got, err := json.Marshal(ephemeraljob.Template(document)["spec"])
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{`"containers":[{"image":"a","name":"a","volumeDevices":[{"name":"d"}],"volumeMounts":[{"name":"v"},{"name":"v"}]}]`, `{"emptyDir":{},"name":"v"}`,
		`{"name":"d","persistentVolumeClaim":{"claimName":"any"}}`} {
		if !strings.Contains(string(got), part) {
			t.Errorf("%s lacks %s", got, part)
		}
	}
	for path, want := range map[string]string{"spec.template.spec.containers[0].env[1].name": "spec.template.ephemeralContainers[0].env[1].name",
		"spec.template.spec.volumes[0]": "", "spec.template": ""} {
		if got := ephemeraljob.Placed(path); got != want {
			t.Errorf("%s: place of the field: got %q, want %q", path, got, want)
		}
	}
	for _, odd := range []string{`{}`, `{"template":{"ephemeralContainers":[]}}`, `{"template":{"ephemeralContainers":[1]}}`} {
		if document, _ := read(t, odd); ephemeraljob.Template(document) != nil {
			t.Errorf("the template of %s: got one, want none", odd)
		}
	}
}
