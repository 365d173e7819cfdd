"""Random file operations of several processes, each checked at once against a model in memory: SEED SECONDS PROCESSES."""
import os,sys,random,time,ctypes,hashlib,errno
libc=ctypes.CDLL(None,use_errno=True)
def exchange(a,b):
    if libc.renameat2(-100,a.encode(),-100,b.encode(),2)!=0: raise OSError(ctypes.get_errno(),"exchange")
def worker(w,seed,secs):
    R=random.Random(seed*100+w); os.makedirs(f"w{w}",exist_ok=True); here=f"w{w}"
    files={}   # name -> obj
    class O: pass
    fds=[]     # (fd, obj, append)
    end=time.time()+secs; n=0; log=[]
    def chk(o,data,what):
        if data!=bytes(o.d):
            i=next((i for i,(a,b) in enumerate(zip(data,o.d)) if a!=b),min(len(data),len(o.d)))
            raise AssertionError(f"w{w} seed{seed} step{n} {what}: len {len(data)} want {len(o.d)} first diff {i}; log {log[-12:]}")
    while time.time()<end:
        n+=1; op=R.randrange(20); names=list(files)
        try:
            if op<=3 or not names:
                name=f"{here}/f{n}"; o=O(); o.d=bytearray(os.urandom(R.choice([0,10,5000,100000,700000]))); o.ino=None
                with open(name,"wb") as f: f.write(o.d)
                o.ino=os.stat(name).st_ino; o.links=1; files[name]=o; log.append(("create",name,len(o.d)))
            elif op==4 and len(fds)<12:
                name=R.choice(names); ap=R.random()<.4; fd=os.open(name,os.O_RDWR|(os.O_APPEND if ap else 0)); fds.append((fd,files[name],ap)); log.append(("open",name,fd))
                if R.random()<.3: f2=os.dup(fd); fds.append((f2,files[name],ap))
            elif op in(5,6,7) and fds:
                fd,o,ap=R.choice(fds); data=os.urandom(R.choice([1,100,4096,300000]))
                if ap: os.write(fd,data); o.d+=data; log.append(("append",fd,len(data)))
                else:
                    at=R.randrange(0,len(o.d)+5000); os.pwrite(fd,data,at)
                    if len(o.d)<at: o.d+=bytes(at-len(o.d))
                    o.d[at:at+len(data)]=data; log.append(("pwrite",fd,at,len(data)))
            elif op==8 and fds:
                fd,o,ap=R.choice(fds); k=R.randrange(0,len(o.d)+2000); os.ftruncate(fd,k); o.d=o.d[:k]+bytes(max(0,k-len(o.d))); log.append(("ftrunc",fd,k))
            elif op==9 and fds:
                fd,o,ap=fds.pop(R.randrange(len(fds))); chk(o,os.pread(fd,len(o.d)+10,0),f"fd{fd}"); s=os.fstat(fd); assert s.st_ino==o.ino or o.links==0,(w,n,"fstat ino",s.st_ino,o.ino,log[-12:]); assert s.st_nlink==o.links,(w,seed,n,"nlink",s.st_nlink,o.links,log[-12:]); os.close(fd); log.append(("close",fd))
            elif op==10: 
                a=R.choice(names); b=f"{here}/r{n}"; os.rename(a,b); files[b]=files.pop(a); log.append(("ren",a,b))
            elif op==11 and len(names)>1:
                a,b=R.sample(names,2)
                if files[a] is files[b]: os.rename(a,b)
                else: os.rename(a,b); files[b].links-=1; files[b]=files.pop(a)
                log.append(("over",a,b))
            elif op==12 and len(names)>1:
                a,b=R.sample(names,2); exchange(a,b); files[a],files[b]=files[b],files[a]; log.append(("xchg",a,b))
            elif op==13:
                a=R.choice(names); os.unlink(a); files.pop(a).links-=1; log.append(("rm",a))
            elif op==14:
                a=R.choice(names); o=files[a]; data=os.urandom(R.choice([0,7,60000]));
                with open(a,"wb") as f: f.write(data)
                o.d=bytearray(data); log.append(("trunc-write",a,len(data)))
            elif op==15:
                a=R.choice(names); b=f"{here}/l{n}"
                if R.random()<.3: os.link(a,b); files[b]=files[a]; files[a].links+=1; log.append(("link",a,b))
            elif op==16:
                there=f"w{w}-{n}"; os.rename(here,there); files={there+k[len(here):]:v for k,v in files.items()}; here=there; log.append(("rendir",there))
            elif op==17:
                a=R.choice(names); k=R.randrange(0,len(files[a].d)+2000); os.truncate(a,k); o=files[a]; o.d=o.d[:k]+bytes(max(0,k-len(o.d))); log.append(("truncate",a,k))
            elif op==18:
                a=R.choice(names); mode=R.choice([0o600,0o644,0o755]); fd=os.open(a,os.O_RDONLY) if R.random()<.5 else -1
                os.chmod(a if fd<0 else fd,mode); s=os.stat(a); assert s.st_mode&0o777==mode,(w,seed,n,a,"mode",oct(s.st_mode),oct(mode),fd,log[-12:])
                os.utime(a if fd<0 else fd,(1e9,1e9+n)); s=os.stat(a); assert s.st_mtime==1e9+n,(w,seed,n,a,"mtime",s.st_mtime,1e9+n,fd,log[-12:])
                log.append(("attributes",a,fd))
                if fd>=0: os.close(fd)
            else:
                have=set(os.listdir(here)); want={k[len(here)+1:] for k in files}
                assert have==want,(w,seed,n,"listdir",have^want,log[-12:])
                for e in os.scandir(here):
                    assert e.is_file(follow_symlinks=False) and not e.is_symlink(),(w,seed,n,"kind",e); assert e.inode()==files[here+"/"+e.name].ino,(w,seed,n,"d_ino",e.inode(),files[here+"/"+e.name].ino,log[-12:])
            for a in R.sample(list(files),min(2,len(files))):
                s=os.lstat(a); o=files[a]
                assert s.st_size==len(o.d) and s.st_ino==o.ino and s.st_nlink==o.links,(w,seed,n,a,"lstat",s.st_size,len(o.d),s.st_ino,o.ino,s.st_nlink,o.links,log[-12:])
                chk(o,open(a,"rb").read(),a)
            while len(files)>25:
                a=R.choice(list(files)); os.unlink(a); files.pop(a).links-=1
        except OSError as e:
            raise AssertionError((w,seed,n,repr(e),log[-12:]))
    for fd,o,ap in fds: chk(o,os.pread(fd,len(o.d)+10,0),f"end fd{fd}"); os.close(fd)
    with open(f"sums{w}","w") as f:
        for a,o in files.items(): f.write(f"{hashlib.sha1(o.d).hexdigest()}  {a}\n")
    print("w",w,"steps",n,flush=True); os._exit(0)
if __name__=="__main__":
    seed=int(sys.argv[1]); secs=float(sys.argv[2]); k=int(sys.argv[3]); pids=[]
    for w in range(k):
        p=os.fork()
        if p==0:
            try: worker(w,seed,secs)
            except BaseException as e: print("FAIL",repr(e),flush=True); os._exit(1)
        pids.append(p)
    bad=0
    for p in pids: bad|=os.waitpid(p,0)[1]
    sys.exit(1 if bad else 0)
