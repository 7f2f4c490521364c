package admission

import (
	"encoding/json"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	appsv1alpha1 "github.com/afloat-project/afloat/api/apps/v1alpha1"
	appsv1beta1 "github.com/afloat-project/afloat/api/apps/v1beta1"
	policyv1beta1 "github.com/afloat-project/afloat/api/policy/v1beta1"
	"github.com/afloat-project/afloat/internal/engine/jsonfields"
	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
	containerrecreatecontroller "github.com/afloat-project/afloat/internal/kinds/containerrecreate/controller"
	"github.com/afloat-project/afloat/internal/racetest"
)

const (
	plainSelector = `"selector":{"matchLabels":{"app":"web"}}`
	plainTemplate = `"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"app","image":"app:1"}]}}`
)

// specs are specs of each kind that are admitted.
var specs = map[string]string{
	"CloneSet":             `{"replicas":1,` + plainSelector + `,` + plainTemplate + `,"scaleStrategy":{"podsToDelete":["a"]}}`,
	"StatefulSet":          `{"replicas":1,"serviceName":"web",` + plainSelector + `,` + plainTemplate + `,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}},"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}]}`,
	"DaemonSet":            `{` + plainSelector + `,` + plainTemplate + `,"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1}}}`,
	"BroadcastJob":         `{` + strings.Replace(plainTemplate, `"containers"`, `"restartPolicy":"Never","containers"`, 1) + `,"completionPolicy":{"type":"Always"}}`,
	"AdvancedCronJob":      `{"schedule":"0 1 * * *","template":{"broadcastJobTemplate":{"spec":{` + strings.Replace(plainTemplate, `"containers"`, `"restartPolicy":"Never","containers"`, 1) + `}}}}`,
	"EphemeralJob":         `{` + plainSelector + `,"template":{"ephemeralContainers":[{"name":"debug","image":"debug:1"}]}}`,
	"UnitedDeployment":     `{"replicas":1,` + plainSelector + `,"template":{"cloneSetTemplate":{"metadata":{"labels":{"app":"web"}},"spec":{` + plainSelector + `,` + plainTemplate + `}}},"topology":{"subsets":[{"name":"a"}]}}`,
	"SidecarSet":           `{` + plainSelector + `,"containers":[{"name":"side","image":"side:1"}]}`,
	"WorkloadSpread":       `{"targetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"x"},"subsets":[{"name":"s"}]}`,
	"PersistentPodState":   `{"targetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"x"},"preferredPersistentTopology":[{"weight":1,"preference":{"keys":["zone"]}}]}`,
	"ImagePullJob":         `{"image":"a:1","completionPolicy":{"type":"Always"}}`,
	"ImageListPullJob":     `{"images":["a:1"],"completionPolicy":{"type":"Always"}}`,
	"NodeImage":            `{"images":{"a":{"tags":[]}}}`,
	"PodUnavailableBudget": `{` + plainSelector + `,"maxUnavailable":1}`,
	"ResourceDistribution": `{"resource":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}},"targets":{"allNamespaces":true}}`,
	"PodProbeMarker":       `{` + plainSelector + `,"probes":[{"name":"idle","containerName":"app","podConditionType":"example.com/idle","probe":{"httpGet":{"path":"/idle","port":80}},"markerPolicy":[{"state":"Succeeded","labels":{"idle":"true"}}]}]}`,
	"NodePodProbe":         `{"podProbes":[]}`,
	// its pod is the one of recreatable
	"ContainerRecreateRequest": `{"podName":"web-7","containers":[{"name":"plain"}]}`,
}

// meant are fields, by kind and path, of which an empty value says something else than its absence.
var meant = map[string]bool{
	// which of several kinds it is for
	"AdvancedCronJob template.imageListPullJobTemplate":        true,
	"AdvancedCronJob template.jobTemplate":                     true,
	"UnitedDeployment template.statefulSetTemplate":            true,
	"UnitedDeployment template.advancedStatefulSetTemplate":    true,
	"UnitedDeployment template.deploymentTemplate":             true,
	"PodUnavailableBudget targetRef":                           true,
	"PodUnavailableBudget ignoredPodSelector":                  true, // it would ignore all
	"SidecarSet namespaceSelector":                             true, // it would select all
	"SidecarSet containers.0.resourcesPolicy":                  true, // it asks for resources, and does not say which
	"PersistentPodState requiredPersistentTopology":            true, // its list of keys must not be empty (PPS-023)
	"StatefulSet updateStrategy.rollingUpdate.unorderedUpdate": true, // it asks for that way
	"PodProbeMarker probes.0.probe.exec":                       true, // it is a second thing to do, as in probes of pods
	"PodProbeMarker probes.0.probe.tcpSocket":                  true,
	"ContainerRecreateRequest containers.0.statusContext":      true, // its type has a member that is always written
}

// Typed clients send empty objects where they have nothing to say, others send empty lists or null. None of
// that may have another answer than the object without it, when it is created and when it is updated: each
// EphemeralJob of a Go client was refused because of "resources: {}".
func TestWhatIsEmptyMeansAbsent(t *testing.T) {
	racetest.SkipAlone(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{appsv1alpha1.AddToScheme, appsv1beta1.AddToScheme, policyv1beta1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	handlers, _, _ := open(t)
	recreate := webhooktest.Handler(containerrecreatecontroller.ContainerRecreateRequests(accepting(t)).Mutate)
	for i := range Registered {
		kind := &Registered[i]
		t.Run(kind.Name, func(t *testing.T) {
			object := reflect.PointerTo(scheme.AllKnownTypes()[kind.Stored()])
			given := framework.Document{"apiVersion": kind.Stored().GroupVersion().String(), "kind": kind.Name, "metadata": framework.Document{"name": "web"}}
			given["spec"] = parsed(t, specs[kind.Name])
			ask := func(updated, old framework.Document) admission.Response {
				request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "u", Operation: admissionv1.Create, Name: "web",
					Kind:     metav1.GroupVersionKind{Group: kind.Group, Version: kind.Stored().Version, Kind: kind.Name},
					Resource: metav1.GroupVersionResource{Group: kind.Group, Version: kind.Stored().Version, Resource: kind.Plural},
					Object:   runtime.RawExtension{Raw: []byte(webhooktest.Encoded(t, updated))}}}
				if !kind.Cluster {
					request.Namespace = "shop"
				}
				if old != nil {
					request.Operation, request.OldObject.Raw = admissionv1.Update, []byte(webhooktest.Encoded(t, old))
				}
				for _, verb := range []string{"mutate", "validate"} {
					handler := handlers[kind.Path(verb)]
					if kind.Name == "ContainerRecreateRequest" && verb == "mutate" {
						handler = recreate
					}
					if handler == nil {
						continue
					}
					answer := handler.Handle(t.Context(), request)
					if !answer.Allowed {
						return answer
					}
					operations, err := jsonpatch.DecodePatch([]byte(webhooktest.Encoded(t, answer.Patches)))
					if err != nil {
						t.Fatal(err)
					}
					if request.Object.Raw, err = operations.Apply(request.Object.Raw); err != nil {
						t.Fatal(err)
					}
				}
				return admission.Allowed("")
			}
			if answer := ask(given, nil); !answer.Allowed {
				t.Fatalf("admission of what is given: %+v", answer.Result)
			}
			same := func(how string, variant framework.Document) {
				for name, answer := range map[string]admission.Response{"created": ask(variant, nil), "written over": ask(variant, given),
					"overwritten": ask(given, variant)} {
					if !answer.Allowed {
						t.Errorf("%s, %s: refused: %s", how, name, answer.Result.Message)
					}
				}
			}
			same("as Go types write it", typed(t, given, object))
			for path, value := range empties(given["spec"], jsonfields.Of(object.Elem())["spec"], nil) {
				if meant[kind.Name+" "+path] {
					continue
				}
				for _, empty := range []any{value, nil} {
					variant := parsed(t, webhooktest.Encoded(t, given))
					place(variant["spec"], strings.Split(path, "."), empty)
					same(path+" = "+webhooktest.Encoded(t, empty), variant)
				}
			}
		})
	}
}

func parsed(t *testing.T, text string) framework.Document {
	t.Helper()
	object, err := framework.DecodeDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// typed is what a Go client sends for an object: each struct with all the fields that have no omitempty.
func typed(t *testing.T, given framework.Document, of reflect.Type) framework.Document {
	t.Helper()
	object := reflect.New(of.Elem()).Interface()
	if err := json.Unmarshal([]byte(webhooktest.Encoded(t, given)), object); err != nil {
		t.Fatal(err)
	}
	sent := parsed(t, webhooktest.Encoded(t, object))
	spec, _ := sent["spec"].(framework.Document)
	template, _ := spec["template"].(framework.Document)
	if list, ok := template["ephemeralContainers"]; ok { // a list of Go types in the clients of the reference
		var containers []corev1.EphemeralContainer
		if err := json.Unmarshal([]byte(webhooktest.Encoded(t, list)), &containers); err != nil {
			t.Fatal(err)
		}
		var again any
		if err := json.Unmarshal([]byte(webhooktest.Encoded(t, containers)), &again); err != nil {
			t.Fatal(err)
		}
		template["ephemeralContainers"] = again
	}
	if inner, ok := template["spec"]; ok {
		pod := corev1.PodSpec{}
		if err := json.Unmarshal([]byte(webhooktest.Encoded(t, inner)), &pod); err != nil {
			t.Fatal(err)
		}
		template["spec"] = parsed(t, webhooktest.Encoded(t, pod))
	}
	return sent
}

// empties are the fields that a document does not have and its type has, by their path, with the empty value
// that fits.
func empties(value any, of reflect.Type, path []string) map[string]any {
	found := map[string]any{}
	if of = jsonfields.Elem(of); len(path) > 12 {
		return found
	}
	switch value := value.(type) {
	case framework.Document:
		if of.Kind() == reflect.Map {
			for key, member := range value {
				maps.Copy(found, empties(member, of.Elem(), longer(path, key)))
			}
		}
		if of.Kind() != reflect.Struct {
			return found
		}
		for key, inner := range jsonfields.Of(of) {
			if member, present := value[key]; present {
				maps.Copy(found, empties(member, inner, longer(path, key)))
				continue
			}
			if key == "ephemeralContainers" {
				continue
			}
			switch kind := jsonfields.Elem(inner).Kind(); {
			case jsonfields.Decodes(jsonfields.Elem(inner)): // it may be a list
				found[strings.Join(longer(path, key), ".")] = nil
			case kind == reflect.Slice:
				found[strings.Join(longer(path, key), ".")] = []any{}
			case kind == reflect.Map || kind == reflect.Struct:
				found[strings.Join(longer(path, key), ".")] = framework.Document{}
			default:
				found[strings.Join(longer(path, key), ".")] = nil
			}
		}
	case []any:
		if of.Kind() == reflect.Slice {
			for i, item := range value {
				maps.Copy(found, empties(item, of.Elem(), longer(path, strconv.Itoa(i))))
			}
		}
	}
	return found
}

// place sets a value at a path.
func place(into any, path []string, value any) {
	for len(path) > 1 {
		into, _ = elementOf(into, path[0])
		path = path[1:]
	}
	into.(framework.Document)[path[0]] = value
}
