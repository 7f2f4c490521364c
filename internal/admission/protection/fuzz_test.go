package protection

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/api/pub"
	"github.com/afloat-project/afloat/internal/fuzzing"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/platform/protectionlog"
)

// pages answers each request with the same page.
type pages struct {
	page  string
	asked []string
}

func (p *pages) RoundTrip(r *http.Request) (*http.Response, error) {
	p.asked = append(p.asked, r.URL.Path)
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(p.page)), Request: r}, nil
}

// listPaths are the lists that may be read.
var listPaths = regexp.MustCompile(`^/api/v1/namespaces/[a-z0-9-]+/(pods|persistentvolumeclaims)$|^/apis/[a-z0-9.-]+/[a-z0-9-]+/[a-z0-9-]+$`)

// FuzzDeletions: each deletion is allowed, or refused with a reason that names the object and has a bound.
// Always is refused, any other value but Cascading is allowed, and a dry run tells nobody. What is read are
// lists of what the object contains, whatever its names are.
func FuzzDeletions(f *testing.F) {
	const seed = `{"metadata":{"name":"web","namespace":"shop","uid":"u","labels":{"` + pub.DeletionProtection + `":"Cascading"}},"spec":{"replicas":1,"group":"example.com","names":{"plural":"games"},` +
		`"versions":[{"name":"v1","served":true},{"name":"v2","served":true,"storage":true}]},"status":{"currentNumberScheduled":3}}`
	for i := range uint8(9) {
		f.Add(seed, []byte{}, i, `{"metadata":{},"items":[{"metadata":{"name":"a"},"status":{"phase":"Bound"}}]}`)
		f.Add(seed, []byte("\x01\x02\x01\x00\x03"), i, `{"items":null}`)
		f.Add(strings.ReplaceAll(seed, "Cascading", "Always"), []byte("other names"), i, `[]`)
	}
	gates, err := features.Parse(allGates)
	if err != nil {
		f.Fatal(err)
	}
	host, err := url.Parse("http://api.example.com")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string, changes []byte, choice uint8, page string) {
		text = fuzzing.Edit(text, changes, "name", "namespace", "labels", "replicas", "group", "names", "plural", "versions", "served", "deletionTimestamp", pub.DeletionProtection)
		var metadata struct{ Continue string }
		var list map[string]json.RawMessage
		if json.Unmarshal([]byte(page), &list) == nil && json.Unmarshal(list["metadata"], &metadata) == nil && metadata.Continue != "" {
			return // there is a page after each
		}
		all := append([]Kind{Scaled("CloneSet"), OnNodes("DaemonSet")}, Kinds...)
		kind := all[int(choice)%len(all)]
		server, told := &pages{page: page}, &recorder{}
		config := rest.ClientContentConfig{Negotiator: k8sruntime.NewClientNegotiator(scheme.Codecs.WithoutConversion(), metav1.SchemeGroupVersion)}
		c, err := rest.NewRESTClient(host, "/", config, nil, &http.Client{Transport: server})
		if err != nil {
			t.Fatal(err)
		}
		lines, _ := protectionlog.Open("/no/such/folder", io.Discard)
		guard := New(gates, c, NewTeller(told, lines, logr.Discard(), time.Now))
		for _, dry := range []bool{true, false} {
			answer := guard.Handler(kind)(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Delete, DryRun: &dry,
				Kind: metav1.GroupVersionKind{Kind: kind.Name}, OldObject: k8sruntime.RawExtension{Raw: []byte(text)}}})
			var o object
			if err := json.Unmarshal([]byte(text), &o); err == nil && o.Metadata.DeletionTimestamp == nil {
				value := o.Metadata.Labels[pub.DeletionProtection]
				if value == "Always" && answer.Allowed || value != "Always" && value != "Cascading" && (!answer.Allowed || len(server.asked) > 0) {
					t.Errorf("%s %s: allowed %t, asked for %q", kind.Name, text, answer.Allowed, server.asked)
				}
			} else if !answer.Allowed {
				t.Errorf("%s %s is refused: %s", kind.Name, text, answer.Result.Message)
			}
			if !answer.Allowed && (answer.Result == nil || !strings.Contains(answer.Result.Message, o.Metadata.Name) || !strings.Contains(answer.Result.Message, kind.Name) ||
				len(answer.Result.Message) > 4<<10+2*len(text)+len(page)) {
				t.Errorf("%s %s is refused: %+v", kind.Name, text, answer.Result)
			}
			if dry && len(told.notes) > 0 || answer.Allowed && len(told.notes) > 0 {
				t.Errorf("%s %s, dry run %t, allowed %t: told %q", kind.Name, text, dry, answer.Allowed, told.notes)
			}
		}
		for _, path := range server.asked {
			if !listPaths.MatchString(path) {
				t.Errorf("%s %s: %s was read", kind.Name, text, path)
			}
		}
	})
}

// FuzzPage: a page that can be read has as many objects as a parser of the whole page finds, and no beginning
// of it can be read: else a namespace that is full would be deleted when the connection breaks.
func FuzzPage(f *testing.F) {
	const page = `{"kind":"List","metadata":{"continue":"x"},"items":[{"metadata":{"name":"a"},"status":{"phase":"Bound"}},{"metadata":{"deletionTimestamp":"2026-01-02T03:04:05Z"}}],"more":[{"a":1}],"number":7}`
	f.Add(page, []byte{}, "Bound", uint16(20))
	f.Add(page, []byte("\x02\x01\x00\x03\x01"), "", uint16(90))
	f.Add(`{"items":null}`, []byte{}, "", uint16(13))
	f.Fuzz(func(t *testing.T, page string, changes []byte, phase string, cut uint16) {
		page = strings.TrimSpace(fuzzing.Edit(page, changes, "items", "metadata", "status", "phase", "deletionTimestamp", "continue"))
		l := list{phase: phase}
		number, next, err := l.read(strings.NewReader(page))
		if err != nil || !json.Valid([]byte(page)) { // what follows the page is not read
			return
		}
		var whole map[string]json.RawMessage
		var items []struct {
			Metadata struct{ DeletionTimestamp string }
			Status   struct{ Phase string }
		}
		var metadata struct{ Continue string }
		if err := json.Unmarshal([]byte(page), &whole); err != nil {
			t.Fatalf("%s is read, and not by the standard library: %v", page, err)
		}
		for into, text := range map[any]json.RawMessage{&items: whole["items"], &metadata: whole["metadata"]} {
			if err := json.Unmarshal(text, into); err != nil && len(text) > 0 {
				t.Fatalf("%s is read, and not by the standard library: %v", page, err)
			}
		}
		want := int64(0)
		for _, item := range items {
			if item.Metadata.DeletionTimestamp == "" && (phase == "" || item.Status.Phase == phase) {
				want++
			}
		}
		if number != want || next != metadata.Continue {
			t.Errorf("%s has %d objects and then %q, want %d and %q", page, number, next, want, metadata.Continue)
		}
		beginning := page[:int(cut)%len(page)]
		if _, _, err := l.read(strings.NewReader(beginning)); err == nil {
			t.Errorf("the beginning %s of %s is read", beginning, page)
		}
	})
}
