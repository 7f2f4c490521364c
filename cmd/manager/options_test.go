package main

import (
	"strings"
	"testing"
	"time"

	"github.com/afloat-project/afloat/internal/framework"
	workloadspreadcontroller "github.com/afloat-project/afloat/internal/kinds/workloadspread/controller"
	"github.com/afloat-project/afloat/internal/platform/features"
)

// OPS-020, OPS-093 (part): every flag of the reference is accepted; an unknown one is an error; no profiles
// are served unless asked for.
func TestEveryFlagOfTheReferenceIsAccepted(t *testing.T) {
	flags := map[string]string{
		"metrics-addr": ":1", "health-probe-addr": ":1", "enable-pprof": "true", "pprof-addr": ":1", "enable-leader-election": "false",
		"leader-election-namespace": "n", "leader-election-id": "i", "leader-election-resource-lock": "leases",
		"leader-election-lease-duration": "1s",
		"leader-election-renew-deadline": "1s", "leader-election-retry-period": "1s", "namespace": "n", "sync-period": "1h",
		"controller-cache-sync-timeout": "1m", "webhook-initialize-timeout": "1m", "rest-config-qps": "30", "rest-config-burst": "50",
		"allow-privileged": "true", "feature-gates": "AllAlpha=true", "rate-limiter-base-delay": "5ms", "rate-limiter-max-delay": "1000s",
		"rate-limiter-qps": "10", "rate-limiter-bucket-size": "100", "expectation-timeout": "5m", "assign-bcj-pods-by-scheduler": "true",
		"assign-pods-by-scheduler": "true", "nodeimage-creation-delay": "30s", "default-ttlseconds-for-always-nodeimage": "300",
		"cloneset-scaling-exclude-preparing-delete": "true", "ws-enabled-versioned-status": "deployment", "ws-unschedulable-window": "10m",
		"protection-log-path": "/log",
		"disable-no-deepcopy": "false", "logging-format": "json", "v": "4", "logtostderr": "true", "kubeconfig": "/k",
	}
	for _, controller := range strings.Fields(
		"advancedcronjob broadcastjob cloneset crr daemonset imagepulljob nodeimage nodepodprobe persistentpodstate " +
			"podprobemarker podunavailablebudget resourcedistribution sidecarset sidecarterminator statefulset uniteddeployment workloadspread") {
		flags[controller+"-workers"] = "5"
	}
	var all []string
	for name, value := range flags {
		all = append(all, "--"+name+"="+value)
	}
	if o, err := parseOptions(all); err != nil {
		t.Errorf("parsing all flags: %v", err)
	} else if n := *o.workers["cloneset"]; n != 5 {
		t.Errorf("workers for CloneSets: got %d, want 5", n)
	} else if o.cacheSyncTimeout != time.Minute {
		t.Errorf("time to fill the caches: got %s, want 1m", o.cacheSyncTimeout)
	}
	gates, err := features.Parse("")
	if err != nil {
		t.Fatal(err)
	}
	if o, err := parseOptions(nil); err != nil {
		t.Errorf("parsing no flags: %v", err)
	} else if o.pprof {
		t.Error("profiling is on by default")
	} else if n := *o.workers["advancedcronjob"]; n != 3 { // ACJ-120
		t.Errorf("workers for AdvancedCronJobs by default: got %d, want 3", n)
	}
	if gates.Enabled(features.TemplateNoDefaults) {
		t.Error("gate TemplateNoDefaults is on by default")
	}
	for _, args := range [][]string{{"--unknown"}, {"argument"}, {"--leader-election-resource-lock=configmaps"}, {"--rest-config-burst=x"},
		{"--sync-period=often"}, {"--ws-unschedulable-window=4s"}} {
		if _, err := parseOptions(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// A number by which controllers would never retry, or retry without a pause, is refused with the name of its
// flag; so is what spans cannot be sent to (OPS-124), and names of callers that mean nothing
// (OPS-049 (part)).
func TestFlagsThatWouldStopControllers(t *testing.T) {
	for _, flag := range []string{"rate-limiter-qps=0", "rate-limiter-bucket-size=-1", "rate-limiter-base-delay=0s",
		"rate-limiter-max-delay=-1s", "sync-period=-5m",
		"controller-cache-sync-timeout=-1s", "webhook-initialize-timeout=-1s", "nodeimage-creation-delay=-1s",
		"deferred-resize-timeout=-1s", "shutdown-delay-duration=-1s", "shutdown-delay-duration=1h",
		"tracing-endpoint=collector:4317", "tracing-endpoint=ftp://collector", "tracing-endpoint=https://", "tracing-sampling-rate-per-million=-1",
		"tracing-sampling-rate-per-million=1000001", "webhook-client-names=kube-apiserver", "webhook-client-names=a,"} {
		name, _, _ := strings.Cut(flag, "=")
		if _, err := parseOptions([]string{"--" + flag}); err == nil || !strings.Contains(err.Error(), "--"+name) {
			t.Errorf("a bad --%s: got %v, want an error with the flag", flag, err)
		}
	}
}

// ND-146, WS-185, PUB-130, JST-060, BJ-160, ACJ-120, RD-120: the default numbers of workers, and where the
// protection log is.
func TestNumbersOfWorkersHaveTheirDefaults(t *testing.T) {
	o, err := parseOptions(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"cloneset": 20, "daemonset": 20, "launchpriority": 4, "crr": 3, "nodeimage": 3, "imagepulljob": 3,
		"workloadspread": 3, "podunavailablebudget": 3, "sidecarterminator": 3, "broadcastjob": 3, "advancedcronjob": 3, "resourcedistribution": 3} {
		if got := o.workers[name]; got == nil {
			t.Errorf("workers for %s: got none, want %d", name, want)
		} else if *got != want {
			t.Errorf("workers for %s: got %d, want %d", name, *got, want)
		}
	}
	if !o.kinds.AssignJobsByScheduler {
		t.Errorf("pods of BroadcastJobs by the scheduler: got %+v, want it so by default", o.kinds)
	}
	for args, byScheduler := range map[string]bool{"--assign-bcj-pods-by-scheduler=false --broadcastjob-workers=7": false, "--expectation-timeout=5m --broadcastjob-workers=7": true} {
		if o, err := parseOptions(strings.Fields(args)); err != nil {
			t.Errorf("%s: %v", args, err)
		} else if o.kinds.AssignJobsByScheduler != byScheduler {
			t.Errorf("%s: pods by the scheduler: got %t, want %t", args, !byScheduler, byScheduler)
		} else if n := *o.workers["broadcastjob"]; n != 7 {
			t.Errorf("%s: got %d workers for BroadcastJobs, want 7", args, n)
		}
	}
	if o.protectionLog != "/log" {
		t.Errorf("the protection log is in %s", o.protectionLog)
	}
	if o, err = parseOptions([]string{"--podunavailablebudget-workers=5",
		"--protection-log-path=/elsewhere"}); err != nil {
		t.Errorf("parsing flags: %v", err)
	} else if n := *o.workers["podunavailablebudget"]; n != 5 {
		t.Errorf("workers for budgets: got %d, want 5", n)
	} else if o.protectionLog != "/elsewhere" {
		t.Errorf("the protection log is in %s, want /elsewhere", o.protectionLog)
	}
}

// OPS-021, OPS-010.
func TestEnvironment(t *testing.T) {
	cases := map[string]struct {
		env   map[string]string
		wrong bool
		is    func(*options) bool
	}{
		"nothing set": {is: func(o *options) bool {
			return o.installNamespace == "kruise-system" && o.webhookPort == 9876 && o.certDir == "/tmp/kruise-webhook-certs" &&
				o.secretName == "kruise-webhook-certs" && o.serviceName == "kruise-webhook-service" && !o.filesOnly()
		}},
		"all set": {env: map[string]string{"POD_NAMESPACE": "n", "WEBHOOK_PORT": "1", "WEBHOOK_CERT_DIR": "d", "SECRET_NAME": "s",
			"SERVICE_NAME": "v", "CERTS_RENEW_BEFORE": "1y"},
			is: func(o *options) bool {
				return o.installNamespace == "n" && o.webhookPort == 1 && o.certDir == "d" && o.secretName == "s" && o.serviceName == "v" &&
					o.renewBefore == "1y"
			}},
		"files with a host": {env: map[string]string{"WEBHOOK_HOST": "h"}, is: (*options).filesOnly},
		"a Secret with a host": {env: map[string]string{"WEBHOOK_HOST": "h", "WEBHOOK_CERT_WRITER": "secret"},
			is: func(o *options) bool { return !o.filesOnly() }},
		"files":                      {env: map[string]string{"WEBHOOK_CERT_WRITER": "fs"}, is: (*options).filesOnly},
		"a writer that nobody knows": {env: map[string]string{"WEBHOOK_CERT_WRITER": "file"}, wrong: true},
		"no port":                    {env: map[string]string{"WEBHOOK_PORT": "https"}, wrong: true},
		"a port out of range":        {env: map[string]string{"WEBHOOK_PORT": "70000"}, wrong: true},
		"kinds without SidecarSet": {env: map[string]string{"CUSTOM_RESOURCE_ENABLE": "CloneSet,StatefulSet"},
			is: func(o *options) bool { return !podWebhook(t, o) }},
		"kinds with SidecarSet": {env: map[string]string{"CUSTOM_RESOURCE_ENABLE": "CloneSet, SidecarSet"},
			is: func(o *options) bool { return podWebhook(t, o) }},
		"kinds, but the gate is set": {env: map[string]string{"CUSTOM_RESOURCE_ENABLE": "CloneSet", "gates": "PodWebhook=true"},
			is: func(o *options) bool { return podWebhook(t, o) }},
		"kinds, and another gate set": {env: map[string]string{"CUSTOM_RESOURCE_ENABLE": "CloneSet", "gates": "CloneSetShortHash=true"},
			is: func(o *options) bool { return !podWebhook(t, o) }},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"POD_NAMESPACE", "WEBHOOK_PORT", "WEBHOOK_CERT_DIR", "SECRET_NAME", "SERVICE_NAME",
				"WEBHOOK_HOST", "WEBHOOK_CERT_WRITER", "CERTS_RENEW_BEFORE", "CUSTOM_RESOURCE_ENABLE"} {
				t.Setenv(name, test.env[name])
			}
			o, err := parseOptions([]string{"--feature-gates=" + test.env["gates"]})
			if (err != nil) != test.wrong {
				t.Errorf("got error %v, want one: %t", err, test.wrong)
			} else if err == nil && !test.is(o) {
				t.Errorf("got other options than are meant: %+v", o)
			}
		})
	}
}

func podWebhook(t *testing.T, o *options) bool {
	t.Helper()
	gates, err := features.Parse(o.featureGates)
	if err != nil {
		t.Fatal(err)
	}
	return gates.Enabled(features.PodWebhook)
}

// OPS-052: all alpha gates include external certificates.
func TestAllAlphaMeansExternalCertificates(t *testing.T) {
	for list, want := range map[string]bool{"": false, "AllAlpha=true": true, "EnableExternalCerts=true": true,
		"AllAlpha=true,EnableExternalCerts=false": false} {
		gates, err := features.Parse(list)
		if err != nil {
			t.Errorf("gates %q: %v", list, err)
		}
		if got := gates.Enabled(features.EnableExternalCerts); got != want {
			t.Errorf("external certificates by the gates %q: got %t, want %t", list, got, want)
		}
	}
}

// WS-081, WS-184: the kinds that are passed at the start are counted by version.
func TestVersionedKinds(t *testing.T) {
	for args, want := range map[string]string{"": "Deployment ReplicaSet", "--ws-enabled-versioned-status=cloneset": "CloneSet",
		"--ws-enabled-versioned-status=": ""} {
		var given []string
		if args != "" {
			given = append(given, args)
		}
		o, err := parseOptions(given)
		if err != nil {
			t.Fatal(err)
		}
		gates, err := features.Parse("WorkloadSpread=false")
		if err != nil {
			t.Fatal(err)
		}
		s := &framework.Environment{Gates: gates, Flags: o.kinds}
		err = workloadspreadcontroller.WorkloadSpread.Prepare(t.Context(), s)
		if err != nil {
			t.Fatalf("following WorkloadSpreads: %v", err)
		}
		// WS-186: nothing of this without the gate
		if workloadspreadcontroller.Watching.In(s) != nil || workloadspreadcontroller.Listing.In(s) != nil {
			t.Fatalf("without the gate WorkloadSpreads are followed: %+v", s)
		}
		var got []string
		for _, kind := range []string{"CloneSet", "Deployment", "ReplicaSet", "StatefulSet"} {
			if workloadspreadcontroller.Versioned(s).Has(kind) {
				got = append(got, kind)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: kinds with versions: got %v, want %s", args, got, want)
		}
	}
}
