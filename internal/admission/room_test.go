package admission

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/afloat-project/afloat/internal/framework"
	"github.com/afloat-project/afloat/internal/framework/webhooktest"
)

func TestItemsOfListsAreCounted(t *testing.T) {
	for document, want := range map[string]int{
		``: 0, `{}`: 0, `[]`: 0, `[ ]`: 0, `[{}]`: 1, `{"a":[1,2],"b":{"c":[null , "x,[]" ]}}`: 4, `[[],[1]]`: 3,
		`["\",\\",{"a":1,"b":2}]`: 2, `]]}`: 0, `["`: 1,
	} {
		if got := items([]byte(document)); got != want {
			t.Errorf("%s: %d, not %d", document, got, want)
		}
	}
}

// dense is a CloneSet with that many claim templates of a few bytes each.
func dense(items int) string {
	return webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, `"volumeClaimTemplates":[`+strings.TrimSuffix(strings.Repeat(`{},`, items), ",")+`]`)
}

func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Before there was a bound, a document of 300 KB took about 300 MB, one of 1.4 MB more than a GB.
func TestOneObjectCannotTakeTheMemoryOfAManager(t *testing.T) {
	given := dense(100_000)
	for name, do := range map[string]func() string{
		"conversion": func() string {
			_, answer := convert(t, `{"request":{"uid":"u","desiredAPIVersion":"apps.kruise.io/v1beta1","objects":[`+given+`]}}`)
			return answer["response"].(framework.Document)["result"].(framework.Document)["message"].(string)
		},
		"admission": func() string {
			for path, handler := range registered(t, nil, nil) {
				if path == validateCloneSetPath {
					return sized(handler).Handle(t.Context(),
						admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Operation: admissionv1.Create,
							Object: kruntime.RawExtension{Raw: []byte(given)}}}).Result.Message
				}
			}
			return "no handler"
		},
	} {
		message := ""
		if bytes := allocated(func() { message = do() }); bytes > 64<<20 {
			t.Errorf("%s: %d MiB for an object of %d KiB", name, bytes>>20, len(given)>>10)
		}
		if !strings.Contains(message, "20000") {
			t.Errorf("%s: got the message %q, want the bound of 20000 in it", name, message)
		}
	}
}

// The memory that is computed for a request is what the most expensive requests of its size take.
func TestMemoryOfAConversionIsReckoned(t *testing.T) {
	env := `{"name":"` + strings.Repeat("e", 100) + `"}`
	for name, given := range map[string]string{
		"many items": dense(mostItems - 100),
		"environment": strings.Replace(webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, ""), `"containers":[{`,
			`"containers":[{"env":[`+strings.TrimSuffix(strings.Repeat(env+",", 10_000), ",")+`],`, 1),
		"long text": strings.Replace(webhooktest.CloneSet("v1alpha1", webhooktest.GoodTemplate, ""), `"name":"web"`, `"name":"web","annotations":{"a":"`+
			strings.Repeat("x", 1<<20)+`"}`, 1),
	} {
		h := &conversionHandler{log: logr.Discard(), kinds: Registered}
		took := int64(allocated(func() {
			if _, err := h.convertOne([]byte(given), "apps.kruise.io/v1beta1"); err != nil {
				t.Errorf("converting %s: %v", name, err)
			}
		}))
		if reckoned := memoryOf(len(given), items([]byte(given))); took > 2*reckoned {
			t.Errorf("%s: %d KiB are reckoned for %d KiB, it takes %d KiB", name, reckoned>>10, len(given)>>10, took>>10)
		}
	}
}

// Hundreds of large objects at once would take more memory than a manager has: some have to wait, and small
// ones do not wait with them.
func TestLargeRequestsWaitForRoom(t *testing.T) {
	large, err := json.Marshal(strings.Repeat("x", 3_000_000)) // about 46 MiB each
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		begun, end := map[string]bool{}, make(chan struct{})
		var lock sync.Mutex
		handler := newMemoryLimiter().bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			lock.Lock()
			begun[r.URL.Path] = true
			lock.Unlock()
			<-end
		}), mostBody)
		results := make(chan int, 100)
		ask := func(path, body string) {
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
			results <- recorder.Code
		}
		for i := range 5 {
			go ask("/large"+strconv.Itoa(i), string(large))
		}
		synctest.Wait()
		if len(begun) != 2 {
			t.Errorf("%d large requests are served at once, want 2", len(begun))
		}
		go ask("/small", `{}`)
		synctest.Wait()
		if !begun["/small"] {
			t.Error("a small request waits for room beside large ones")
		}
		for range 3 { // those that waited for too long
			if code := <-results; code != http.StatusTooManyRequests {
				t.Errorf("answer %d", code)
			}
		}
		go ask("/beyond", strings.Repeat("x", mostBody+1))
		close(end)
		codes := []int{<-results, <-results, <-results, <-results}
		if slices.Sort(codes); !slices.Equal(codes, []int{http.StatusOK, http.StatusOK, http.StatusOK, http.StatusBadRequest}) {
			t.Errorf("answers %v", codes)
		}
		ask("/again", string(large)) // all room was given back
		if code := <-results; code != http.StatusOK {
			t.Errorf("answer %d", code)
		}
	})
}

// A slow sender does not keep its room for long.
func TestSlowSendersGiveTheirRoomBack(t *testing.T) {
	m := newMemoryLimiter()
	m.time = time.Second
	handler := m.bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), mostBody)
	server := httptest.NewServer(handler)
	defer server.Close()
	ended := make(chan struct{})
	for range 2 {
		slow, send := io.Pipe()
		defer func() { _ = send.Close() }()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, slow)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = mostBody
		go func() {
			if response, err := server.Client().Do(request); err == nil {
				_ = response.Body.Close()
			}
			ended <- struct{}{}
		}()
	}
	for range 2 {
		<-ended
	}
	if err := m.bodies.Acquire(t.Context(), bodyRoom); err != nil {
		t.Errorf("room for bodies was not given back: %v", err)
	}
	if m.small.used != 0 || m.large.used != 0 {
		t.Errorf("%d bytes for small requests and %d for large ones were not given back", m.small.used, m.large.used)
	}
}
