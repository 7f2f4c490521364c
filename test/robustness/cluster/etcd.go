package cluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/afloat-project/afloat/test/robustness/record"
)

// prefix is below which the API server keeps all objects.
const prefix = "/registry/"

// Follow records every change of the objects that rollouts are about, until the context ends. It reads etcd
// itself, so that it misses nothing while the API server is away. Its watch goes on where it was when etcd
// has been away. It first records what is there.
func (c *Cluster) Follow(ctx context.Context, to *record.Writer) (func() error, error) {
	authorities, err := c.Authorities()
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(c.pki("etcd-client.crt"), c.pki("etcd-client.key"))
	if err != nil {
		return nil, fmt.Errorf("reading the certificate for etcd: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"https://127.0.0.1:2379"}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		TLS: &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to etcd: %w", err)
	}

	all, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend))
	if err != nil {
		return nil, fmt.Errorf("reading etcd: %w", err)
	}
	for _, kv := range all.Kvs {
		write(to, string(kv.Key), kv.Value, kv.ModRevision)
	}

	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for answer := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1)) {
			if err := answer.Err(); err != nil {
				failed <- fmt.Errorf("watching etcd: %w", err)
				return
			}
			for _, event := range answer.Events {
				value := event.Kv.Value
				if event.Type == clientv3.EventTypeDelete {
					value = nil
				}
				write(to, string(event.Kv.Key), value, event.Kv.ModRevision)
			}
		}
		if ctx.Err() == nil { // otherwise the record would look like one of a cluster at rest
			failed <- errors.New("the watch of etcd ended by itself")
		}
	}()

	return func() error {
		err := <-failed
		if closing := client.Close(); err == nil && ctx.Err() == nil {
			err = closing
		}
		return err
	}, nil
}

// write records a change, if it is of an object that matters.
func write(to *record.Writer, key string, value []byte, revision int64) {
	change, ok := parse(key)
	if !ok {
		return
	}
	change.Revision, change.Time = revision, time.Now()
	if value != nil {
		object, err := decode(value)
		if err != nil {
			object = json.RawMessage(fmt.Sprintf(`{"undecodable":%q}`, err.Error()))
		}
		change.Object = object
	}
	to.Write(record.Line{Change: &change})
}

// core are the resources of Kubernetes that matter, by the name that etcd has for them.
var core = map[string]string{
	"pods": "pods", "persistentvolumeclaims": "persistentvolumeclaims",
	"configmaps": "configmaps", "controllerrevisions": "controllerrevisions", "leases": "leases", "minions": "nodes",
}

// parse reads the key of an object: the resource, for other groups after their name, then the namespace, if
// it has one, and the name.
func parse(key string) (record.Change, bool) {
	parts := strings.Split(strings.TrimPrefix(key, prefix), "/")
	var c record.Change
	switch {
	case strings.HasSuffix(parts[0], ".kruise.io") && len(parts) > 2:
		c.Resource, parts = parts[1], parts[2:]
	case core[parts[0]] != "":
		c.Resource, parts = core[parts[0]], parts[1:]
	default:
		return c, false
	}
	switch len(parts) {
	case 1:
		c.Name = parts[0]
	case 2:
		c.Namespace, c.Name = parts[0], parts[1]
	default:
		return c, false
	}
	switch c.Resource {
	case "leases": // only the lock of the managers
		return c, c.Namespace == Namespace
	case "configmaps": // not what Kubernetes and the managers keep for themselves
		return c, c.Namespace != Namespace && !strings.HasPrefix(c.Namespace, "kube-")
	}
	return c, true
}

// decode makes JSON of what is stored: custom resources are JSON already, all others are protobuf.
func decode(value []byte) (json.RawMessage, error) {
	if bytes.HasPrefix(value, []byte("{")) {
		var compact bytes.Buffer
		if err := json.Compact(&compact, value); err != nil {
			return nil, fmt.Errorf("reading an object: %w", err)
		}
		return compact.Bytes(), nil
	}
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("reading an object: %w", err)
	}
	return json.Marshal(object)
}
