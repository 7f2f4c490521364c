package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestAuditLogCountsWritesOfOneClient(t *testing.T) {
	log := &auditLog{path: filepath.Join(t.TempDir(), "audit.log")}
	line := func(agent, verb, resource, code string) string {
		resource, subresource, _ := strings.Cut(resource, "/")
		return `{"verb":"` + verb + `","userAgent":"` + agent + `","objectRef":{"resource":"` + resource + `","subresource":"` +
			subresource +
			`"},"responseStatus":{"code":` + code + "}}\n"
	}
	appendTo(t, log.path, line("kruise-manager", "patch", "pods", "200"))
	if err := log.skip(); err != nil {
		t.Fatal(err)
	}
	late := line("kruise-manager", "patch", "pods/status", "200")
	appendTo(t, log.path, line("kruise-manager", "create", "pods", "201")+line("kruise-manager/v1", "patch", "pods/status", "409")+
		line("other", "create", "pods", "201")+line("kruise-manager", "patch", "clonesets/status", "200")+late[:20])
	var w writes
	if err := log.read(&w, "kruise-manager"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, log.path, late[20:])
	if err := log.read(&w, "kruise-manager"); err != nil {
		t.Fatal(err)
	}
	want := writes{done: map[string]int{"create pods": 1, "patch clonesets/status": 1, "patch pods/status": 1},
		refused: map[string]int{"patch pods/status: 409": 1}}
	if diff := cmp.Diff(want, w, cmp.AllowUnexported(writes{})); diff != "" {
		t.Errorf("writes of the log (-want +got):\n%s", diff)
	}
	if w.pods() != 2 {
		t.Errorf("%d writes of pods", w.pods())
	}
}

func seen(name, image string, ready bool) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Image: image}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}}}}
}

func TestObserverCountsAndMeasuresTheBudget(t *testing.T) {
	o := &observer{pods: map[string]podState{}, serving: map[string]int{}, meant: map[string]int{}}
	for _, name := range []string{"a", "b", "c", "d"} {
		o.see(seen(name, "1", true), false)
	}
	o.watchBudget(4, 2, "2")
	updated := o.expect("", func() bool { return o.serving["2"] == 3 })
	o.see(seen("a", "1", false), false)
	o.see(seen("b", "1", false), false)
	o.see(seen("a", "2", true), false)
	o.see(seen("b", "2", true), false)
	o.see(seen("c", "2", false), false)
	o.see(seen("d", "2", false), false)
	select {
	case <-updated:
		t.Error("reached too early")
	default:
	}
	o.see(seen("d", "2", true), false)
	<-updated
	o.see(seen("c", "2", false), true)
	use := o.endBudget()
	if use.Most != 2 {
		t.Errorf("pods that were down at once: got %+v, want 2", use)
	}
	if use.Mean < 0 || use.Mean > 1 {
		t.Errorf("mean use of the budget: got %+v, want 0 to 1", use)
	}
	if use.Down <= 0 {
		t.Errorf("time that pods were down: got %+v, want some", use)
	}
	if len(o.pods) != 3 || o.ready != 3 {
		t.Errorf("pods: got %d, of them ready %d, want 3 ready", len(o.pods), o.ready)
	}
	if o.meant["2"] != 3 || o.meant["1"] != 0 {
		t.Errorf("pods by revision: got %v, want 3 of the second", o.meant)
	}
}

func TestMetricsOfAManager(t *testing.T) {
	m, err := parseMetrics(`# TYPE rest_client_requests_total counter
rest_client_requests_total{code="200",host="h",method="GET"} 3
rest_client_requests_total{code="404",host="h",method="GET"} 1
# TYPE controller_runtime_reconcile_total counter
controller_runtime_reconcile_total{controller="cloneset",result="success"} 5
controller_runtime_reconcile_total{controller="other",result="success"} 7
# TYPE go_memstats_heap_alloc_bytes gauge
go_memstats_heap_alloc_bytes 2.097152e+06
`)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(&metrics{requests: map[string]float64{"GET": 4}, reconciles: 5, heap: 2}, m,
		cmp.AllowUnexported(metrics{})); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}

func TestReportSaysWhatWasMissed(t *testing.T) {
	r := newReport(scenario{name: "s", about: "About."}, "")
	r.atMost("memory", 61, 60, "MiB")
	r.atLeast("speed", 90, 80, "%")
	if err := r.missed(); err != nil {
		t.Errorf("what is missed a little: got %v, want no error", err)
	}
	r.disturbed(&phase{Name: "create", Others: 0.5})
	text := r.markdown()
	for _, want := range []string{"| memory | at most 60 MiB | 61 MiB | **no** |", "| speed | at least 80 % | 90 % | yes |",
		`Others used 50 % of the machine during "create"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// A run fails if a promise is missed by far, and only then.
func TestMissedByFar(t *testing.T) {
	r := newReport(scenario{name: "s"}, "")
	r.atMost("memory", 90, 60, "MiB")
	r.atLeast("speed", 54, 80, "%")
	r.atMost("writes at rest", 0, 0, "")
	if err := r.missed(); err != nil {
		t.Errorf("what is missed, but not by far: got %v, want no error", err)
	}
	r.atMost("CPU", 91, 60, "ms")
	r.atLeast("creation", 53, 80, "%")
	if err := r.missed(); err == nil || err.Error() != "missed by far: CPU: 91 ms, promised at most 60 ms; creation: 53 %, promised at least 80 %" {
		t.Errorf("what is missed by far: got %v, want an error with CPU and creation", err)
	}
}

func TestPercentilesAreThoseOfTheSortedTimes(t *testing.T) {
	var all []time.Duration
	for i := range 100 {
		all = append(all, time.Duration(100-i)*time.Millisecond)
	}
	if p50, p99 := millis(all, 50), millis(all, 99); p50 != 50 || p99 != 99 {
		t.Errorf("percentiles: got %v and %v, want 50 and 99", p50, p99)
	}
}

// The figures that are read of the manager's process can be read of the test's own process.
func TestProcess(t *testing.T) {
	p := process{os.Getpid()}
	m, err := p.memory()
	if err != nil {
		t.Errorf("memory of the process: %v", err)
	}
	if m.RSS <= 0 || m.Peak < m.RSS || m.PSS <= 0 {
		t.Errorf("memory of the process: got %+v, want it resident, its peak no less, and shared", m)
	}
	if !p.alive() {
		t.Error("the process is not alive")
	}
	if _, err := p.cpu(); err != nil {
		t.Errorf("CPU of the process: %v", err)
	}
}

func TestSharesOfAProfile(t *testing.T) {
	got, err := shares(`File: manager
Type: cpu
Duration: 5s, Total samples = 100ms
-----------+-------------------------------------------------------
      30ms   runtime.memmove
             crypto/tls.(*Conn).Write
             golang.org/x/net/http2.(*clientStream).doRequest
             github.com/afloat-project/afloat/internal/kinds/cloneset.(*application).send
-----------+-------------------------------------------------------
     1.20s   runtime.scanObject
             runtime.gcBgMarkWorker (inline)
-----------+-------------------------------------------------------
      10ms   main.main
-----------+-------------------------------------------------------
      20ms   runtime.gcBgMarkWorker
`)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]time.Duration{"garbage collection": 1220 * time.Millisecond,
		"requests: encoding, sending, decoding the answer": 30 * time.Millisecond, "other": 10 * time.Millisecond}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CPU by what it was used for (-want +got):\n%s", diff)
	}
}
